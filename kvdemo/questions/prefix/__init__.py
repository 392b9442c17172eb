"""Does a shared prefix pay? The same questions after one long beginning, processed every time or kept."""

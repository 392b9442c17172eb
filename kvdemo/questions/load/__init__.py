"""With many at once? The same requests one by one, as a padded batch, and by continuous batching."""

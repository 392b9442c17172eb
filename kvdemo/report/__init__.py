"""Any result for others: HTML, Markdown, CSV, and how to repeat it without kvdemo."""

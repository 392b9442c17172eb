"""The page. Gradio only here, in web/ and in app.py."""

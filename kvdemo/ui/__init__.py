"""The page. Gradio only here and in web/."""

"""Records to tables, charts and documents. The only place with pandas and plotly."""

"""Colours, the look of every chart, charts as static SVG, and the charts that no single question owns."""

"""Figures from arrays: plotly and numpy only, no torch."""

"""Charts of page and report as SVG. Colours, strokes and fonts are in `static/chart.css`."""

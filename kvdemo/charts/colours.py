"""The palette's colours let through, and the style rules that turn drawn charts dark. Imports nothing heavy.

Charts are drawn in the colours of the light mode; plotly writes them into each element and cannot follow the page.
"""

from __future__ import annotations

from kvdemo.palette import MEANINGS, PAPER

__all__ = ["dark_rules", "faint", "swaps"]


def faint(colour: str, opacity: float) -> str:
    """The palette's colour "#rrggbb", let through."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:g})"


def swaps() -> dict[str, str]:
    """What becomes of each colour of a chart in dark mode, where that is another one."""
    pairs = {PAPER["light"].faint_text: PAPER["dark"].faint_text}
    for meaning in MEANINGS.values():
        pairs |= {meaning.fill: meaning.dark, meaning.text: meaning.dark}
    return {light: dark for light, dark in pairs.items() if light.lower() != dark.lower()}


def dark_rules(dark: str = ".dark", plot: str = ".js-plotly-plot") -> str:
    """The style rules with which plotly's charts follow a page: `dark` selects the dark mode, `plot` a chart."""
    rules = [
        f"{plot} .modebar {{display: none !important;}}",
        f"{plot} text.gtitle {{fill: {PAPER['light'].text} !important;}}",
        f"{dark} {plot} text.gtitle {{fill: {PAPER['dark'].text} !important;}}",
    ]
    for light, swapped in swaps().items():
        rgb = faint(light, 1).replace("rgba", "rgb").replace(", 1)", ")")
        rules += [
            f'{dark} {plot} [style*="{part}: {rgb}"] {{{part}: {swapped} !important;}}' for part in ("fill", "stroke")
        ]
    return "\n".join(rules) + "\n"

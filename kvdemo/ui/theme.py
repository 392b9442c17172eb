"""How the page looks: Gradio's theme, our style sheet and our browser script, all from the palette and assets/.

No file here is fetched by the browser: style and script travel in the page's head, fonts are the system's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import gradio as gr

from kvdemo.charts.colours import dark_rules
from kvdemo.palette import MEANINGS, PAPER, Paper
from kvdemo.shipped import assets_folder

__all__ = ["page_style", "style_sheet"]

SYSTEM_FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
CODE_FONTS = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def page_style() -> dict[str, Any]:
    """Keyword arguments of `launch` that carry the look: theme and head."""
    scripts = "".join(f"<script>{_asset(name)}</script>" for name in ("page.js", "replay.js"))
    return {"theme": page_theme(), "head": f"<style>{style_sheet()}</style>{scripts}"}


@cache
def style_sheet() -> str:
    """The palette as variables, then assets/style.css, which is written with them."""
    light = _variables(PAPER["light"]) | {
        **{f"--kv-{name}": meaning.fill for name, meaning in MEANINGS.items()},
        **{f"--kv-{name}-text": meaning.text for name, meaning in MEANINGS.items()},
    }
    dark = _variables(PAPER["dark"]) | {
        **{f"--kv-{name}": meaning.dark for name, meaning in MEANINGS.items()},
        **{f"--kv-{name}-text": meaning.dark for name, meaning in MEANINGS.items()},
    }
    rules = _asset("style.css") + _asset("replay.css")
    keys = "\n".join(f".kv-of-{name} {{background: var(--kv-{name});}}" for name in MEANINGS)
    return f"{_block(':root', light)}\n{_block('.dark', dark)}\n{rules}\n{keys}\n{dark_rules()}"


def _asset(name: str) -> str:
    return (assets_folder() / name).read_text(encoding="utf-8")


def _variables(paper: Paper) -> dict[str, str]:
    return {
        "--kv-background": paper.background,
        "--kv-card": paper.card,
        "--kv-line": paper.line,
        "--kv-ink": paper.text,
        "--kv-faint": paper.faint_text,
    }


def _block(selector: str, variables: dict[str, str]) -> str:
    return selector + " {" + " ".join(f"{name}: {value};" for name, value in variables.items()) + "}"


def page_theme() -> gr.themes.Base:
    """A calm paper background, white cards with a hairline border, dark buttons; both modes from the palette."""
    both = {
        "body_background_fill": "background",
        "background_fill_primary": "card",
        "background_fill_secondary": "background",
        "body_text_color": "text",
        "body_text_color_subdued": "faint_text",
        "border_color_primary": "line",
        "block_background_fill": "card",
        "block_border_color": "line",
        "block_label_text_color": "text",
        "block_title_text_color": "text",
        "block_info_text_color": "faint_text",
        "panel_background_fill": "card",
        "input_background_fill": "card",
        "input_border_color": "line",
        "input_border_color_focus": "text",
        "input_placeholder_color": "faint_text",
        "button_primary_background_fill": "text",
        "button_primary_background_fill_hover": "text",
        "button_primary_border_color": "text",
        "button_primary_text_color": "card",
        "button_secondary_background_fill": "card",
        "button_secondary_background_fill_hover": "background",
        "button_secondary_border_color": "line",
        "button_secondary_text_color": "text",
        "checkbox_background_color": "card",
        "checkbox_border_color": "faint_text",
        "checkbox_label_background_fill": "card",
        "checkbox_label_background_fill_selected": "card",
        "checkbox_label_border_color": "line",
        "checkbox_label_border_color_selected": "text",
        "checkbox_label_text_color": "text",
        "checkbox_label_text_color_selected": "text",
        "accordion_text_color": "text",
        "slider_color": "faint_text",
    }
    colours = {name: getattr(PAPER["light"], field) for name, field in both.items()}
    colours |= {f"{name}_dark": getattr(PAPER["dark"], field) for name, field in both.items()}
    accent = MEANINGS["dynamic"].fill
    return gr.themes.Base(
        primary_hue="slate",
        neutral_hue="gray",
        radius_size="lg",
        font=list(SYSTEM_FONTS),
        font_mono=list(CODE_FONTS),
    ).set(
        **colours,
        block_shadow="none",
        block_border_width="0px",
        block_padding="0px",
        input_border_width="1px",
        block_label_background_fill="transparent",
        block_label_border_width="0px",
        block_title_text_weight="600",
        block_title_text_size="14px",
        block_info_text_size="13px",
        input_shadow="none",
        input_shadow_focus="none",
        input_text_size="15px",
        button_primary_shadow="none",
        button_secondary_shadow="none",
        button_border_width="1px",
        button_large_radius="8px",
        button_large_text_size="15px",
        button_large_text_weight="600",
        button_small_text_weight="500",
        layout_gap="18px",
        checkbox_shadow="none",
        checkbox_background_color_selected=accent,
        checkbox_background_color_selected_dark=accent,
        checkbox_border_color_selected=accent,
        checkbox_border_color_selected_dark=accent,
    )

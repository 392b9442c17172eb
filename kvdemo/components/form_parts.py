"""Parts that the forms of Compare's questions have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from kvdemo.components.choices import strategy_choices
from kvdemo.experiments.question import FormBackend
from kvdemo.facts.model import StrategyRow

__all__ = ["run_line", "strategies_followed", "strategies_group"]


def strategies_group(backend: FormBackend, elem_id: str) -> gr.CheckboxGroup:
    return gr.CheckboxGroup(
        strategy_choices(backend.strategies()),
        value=["none", "dynamic"],
        label="Strategies: the first is compared with each other one",
        scale=6,
        elem_id=elem_id,
    )


def run_line(chooser: Callable[[], Any], key: str) -> tuple[Any, gr.Button, gr.Button]:
    """The choice of strategies, then Run, and Stop in its place."""
    with gr.Row(elem_classes="kv-arms-line"):
        strategies = chooser()
        start = gr.Button(
            "Run", variant="primary", scale=0, min_width=110, elem_id=f"compare-{key}-run", elem_classes="kv-run"
        )
        stop = gr.Button(
            "Stop", scale=0, min_width=110, visible=False, elem_id=f"compare-{key}-stop", elem_classes="kv-run"
        )
    return strategies, start, stop


def strategies_followed(rows: tuple[StrategyRow, ...]) -> Any:
    """What can be chosen, once the model is loaded."""
    return gr.update(choices=strategy_choices(rows))

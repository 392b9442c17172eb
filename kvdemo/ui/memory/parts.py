"""The components of the tab Memory, named by what they ask or show, and which of them an event may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

__all__ = ["MemoryParts"]


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Those that a MemoryView names bear its names.

    choice, beside, form   by the fields of ModelChoice, Beside and MemoryForm, in their order
    usual                  the budget in GiB that was put into the form because nobody had said another
    geometry               the choice of a model and the geometry that was found for it
    shown                  what the visitor's page shows already
    measured               points of the loaded model
    looked                 somebody has looked at the tab: it is drawn only then
    """

    choice: dict[str, Any]
    config: gr.Textbox
    upload: gr.UploadButton
    read: gr.Button
    config_box: gr.Column
    hub_box: gr.Column
    ask: gr.Button
    hand_box: gr.Column
    use_hand: gr.Button
    about: gr.Markdown
    link_notice: gr.Markdown
    slider: gr.Slider
    limit: gr.Markdown
    form: dict[str, Any]
    budget_from: gr.Markdown
    usual: gr.State
    beside: dict[str, Any]
    weigh: gr.Button
    stop: gr.Button
    line: gr.Markdown
    link: gr.Markdown
    notice: gr.Markdown
    headline: gr.Markdown
    growth: gr.Plot
    layers: gr.Plot
    arithmetic: gr.Markdown
    fits: gr.Markdown
    sharing: gr.Plot
    figures: gr.Markdown
    card: gr.Markdown
    geometry: gr.State
    shown: gr.State
    measured: gr.State
    looked: gr.State

    @property
    def asked(self) -> list[Any]:
        """What a plan is made from."""
        return [
            *(self.geometry, self.shown, self.measured),
            *(*self.choice.values(), *self.beside.values(), *self.form.values()),
        ]

    @property
    def planned(self) -> list[Any]:
        """What a plan may change."""
        drawn = [self.headline, self.growth, self.layers, self.arithmetic, self.fits, self.sharing, self.figures]
        return [self.geometry, self.about, self.limit, self.link, self.shown, self.notice, *drawn]

    @property
    def budget(self) -> list[Any]:
        """What another usual budget may change."""
        return [self.form["budget_gib"], self.usual, self.budget_from]

    @property
    def linked(self) -> list[Any]:
        """What a link may set."""
        fields = [*self.choice.values(), *self.beside.values(), *self.form.values()]
        return [self.link_notice, self.slider, *fields, self.usual, self.budget_from]

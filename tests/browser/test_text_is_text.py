"""What people, models and files write is text: no script in it runs, no image in it loads, whatever it looks like.

Requests to another host, dialogs and console errors fail the test by themselves, see conftest.py.
"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.served import Served

pytestmark = pytest.mark.browser

MARK = "window.kvdemoWasHere = true"
PAYLOADS = {
    "script": f"<script>{MARK}</script>",
    "image": f'<img src=x onerror="{MARK}">',
    "remote image": '<img src="http://evil.test/a.png">',
    "markdown image": "![a](http://evil.test/b.png)",
    "markdown data image": f"![a](data:image/svg+xml,<svg onload='{MARK}'/>)",
    "reference image": "![a][1]\n\n[1]: http://evil.test/c.png",
    "svg": f'<svg onload="{MARK}"><image href="http://evil.test/d.png"/></svg>',
    "frame": f'<iframe srcdoc="<script>parent.{MARK}</script>"></iframe>',
    "frame address": '<iframe src="http://evil.test/"></iframe>',
    "style": "<style>@import url(http://evil.test/e.css);</style>",
    "style attribute": '<p style="background:url(http://evil.test/f.png)">x</p>',
    "link": f"[press](javascript:{MARK.replace(' ', '')})",
    "autolink": f"<javascript:{MARK.replace(' ', '')}>",
    "form": '<form action="http://evil.test/"><button>go</button></form>',
    "video": '<video src="http://evil.test/g.mp4" autoplay></video><audio src="http://evil.test/h.mp3" autoplay></audio>',
    "meta": '<meta http-equiv="refresh" content="0;url=http://evil.test/">',
    "base": '<base href="http://evil.test/">',
    "closing": f"</div></textarea></script><script>{MARK}</script>",
    "entities": f"&lt;script&gt;{MARK}&lt;/script&gt;",
    "template": "{{constructor.constructor('window.kvdemoWasHere = true')()}} ${7*7} {% raw %}",
    "math": f"$\\href{{javascript:{MARK.replace(' ', '')}}}{{x}}$ $$\\includegraphics{{http://evil.test/i.png}}$$",
    "math tag": f"<math><mtext><script>{MARK}</script></mtext></math>",
    "handlers": f'<details open ontoggle="{MARK}"><summary>x</summary></details><input autofocus onfocus="{MARK}">',
    "thought": f"<think><img src=x onerror='{MARK}'></think><b>bold</b>",
    "code": f"```html\n<script>{MARK}</script>\n```",
}
LONGEST = 250  # characters of an answer: one token each, and the page makes 256 at the most unless it is told to


def together() -> tuple[str, ...]:
    """As many of them in one text as an answer holds, a blank line between them; a thought stands at its beginning."""
    texts: list[str] = []
    for payload in PAYLOADS.values():
        joined = f"{texts[-1]}\n\n{payload}" if texts else payload
        if texts and len(joined) <= LONGEST and not payload.startswith("<think>"):
            texts[-1] = joined
        else:
            texts.append(payload)
    return tuple(texts)


# In make test several stand in one text; in make test-all each also stands alone.
together_and_alone = pytest.mark.parametrize(
    "payloads", [together(), pytest.param(tuple(PAYLOADS.values()), marks=pytest.mark.slow)], ids=["together", "alone"]
)
# What could run or load anything, inside of what is shown as text.
ALIVE = "script, iframe, img, video, audio, form, object, embed, base, meta, link, style, svg[onload]"
SETTLED = """() => new Promise(done => {
  const image = new Image();
  image.onerror = () => requestAnimationFrame(() => requestAnimationFrame(() => done()));
  image.src = "data:image/png;base64,AAAA";
})"""


def nothing_ran(screen: Screen, inside: str, payload: str) -> None:
    """After another image of ours has failed to load, so would have theirs."""
    screen.tab.evaluate(SETTLED)
    assert screen.tab.evaluate("window.kvdemoWasHere === undefined"), payload
    assert screen.tab.url.startswith(screen.served.url), payload
    assert screen.part(inside).locator(ALIVE).count() == 0, payload
    links = [link.get_attribute("href") or "" for link in screen.part(inside).locator("a").all()]
    assert [link for link in links if not link.startswith(("http://", "https://", "?tab="))] == [], payload


@together_and_alone
def test_questions_system_prompts_and_answers_are_text_while_they_stream_and_when_they_stand(
    page: Served, screen: Screen, payloads: tuple[str, ...]
) -> None:
    screen.unfold("#chat-settings")
    for payload in payloads:
        page.puppet.answer = payload.encode()
        screen.part("#chat-system-prompt textarea").fill(payload)
        with page.puppet.held(after=len(page.puppet.answer) - 1):
            screen.send(payload)
            page.puppet.wait_until_held()
            expect(screen.live).not_to_have_text("")
            assert screen.questions.last.text_content() == payload
            nothing_ran(screen, "#conversation", payload)
        screen.wait_for_answer(1)
        raw = screen.part("#chat-past .kv-answer .kv-raw").last.text_content()
        assert raw, payload
        assert raw in payload
        nothing_ran(screen, "#conversation", payload)
        screen.part("#chat-clear").click()
        expect(screen.questions).to_have_count(0)


def test_html_in_an_answer_is_shown_as_it_was_written(page: Served, screen: Screen) -> None:
    page.puppet.answer = b"Use <b>bold</b> and a < b && c > d\n\n    indented\twith a tab"
    screen.ask("How?")
    shown = screen.answers.last
    expect(shown).to_contain_text("Use <b>bold</b> and a < b && c > d")
    assert shown.locator("b").count() == 0
    assert shown.locator(".kv-raw").text_content() == page.puppet.answer.decode()


@together_and_alone
def test_a_pasted_config_is_text(page: Served, screen: Screen, payloads: tuple[str, ...]) -> None:
    screen.open_tab("Memory")
    expect(screen.memory_headline).to_contain_text("cache takes")
    screen.choose("#memory-model", "A config.json")
    for payload in payloads:
        config = {"model_type": payload, "architectures": [payload], "_name_or_path": payload, payload: payload}
        screen.part("#memory-config textarea").fill(json.dumps(config))
        screen.part("#memory-read").click()
        expect(screen.part("#memory-notice")).to_contain_text("config")
        nothing_ran(screen, "#memory-form", payload)
        nothing_ran(screen, "#memory-notice", payload)


def test_a_prompt_to_compare_is_text_in_columns_charts_and_headline(page: Served, screen: Screen) -> None:
    payload = "".join(PAYLOADS.values())[:900]
    page.puppet.answer = payload[:60].encode()
    screen.open_tab("Compare")
    screen.start_comparison(prompt=payload, new_tokens=60)
    screen.wait_for_comparison()
    expect(screen.compare("live")).to_contain_text("<script>")
    for part in ("headline", "live", "tables", "change"):
        nothing_ran(screen, f"#compare-faster-{part}", payload)

/* What the page does in the browser alone: copy an answer word for word, pass on what a button in the conversation
   asks for, keep the newest text in view, write the tab and Memory's numbers into the address. It sends nothing anywhere by itself. */
(() => {
  "use strict";
  const ACTIONS = ["retry", "edit", "undo", "example", "shorten"];
  let asked = 0;

  const classNumber = (element) => {
    const name = [...element.classList].find((entry) => entry.startsWith("kv-at-"));
    return name ? name.slice("kv-at-".length) : "0";
  };

  const type = (field, value) => {
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const copyText = async (text) => {
    if (navigator.clipboard && window.isSecureContext) {
      try {
        await navigator.clipboard.writeText(text);
        return;
      } catch { /* not allowed here, as in a frame: the older way may be */ }
    }
    const area = document.createElement("textarea");
    area.value = text;
    area.style.position = "fixed";
    area.style.left = "-9999px";
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error("not allowed");
  };

  const copyAnswer = async (button) => {
    const answer = button.closest(".kv-tools").previousElementSibling;
    const text = answer && (answer.querySelector(".kv-raw") || answer.querySelector(".kv-text"));
    if (!text) return;
    try {
      await copyText(text.textContent);
      button.textContent = text.title || "Copied";
    } catch {
      button.textContent = "Not allowed here";
    }
    setTimeout(() => { button.textContent = "Copy"; }, text.title ? 4000 : 1500);
  };

  /* A fold that was opened stays open when what it stands in is drawn again: an answer's while it streams and when it
     moves up to the others, a table's with the next result. */
  const unfolded = new Set();
  const foldName = (fold) => {
    const answer = fold.closest("#conversation .kv-answer");
    if (answer) return `answer ${[...document.querySelectorAll("#conversation .kv-answer")].indexOf(answer)}`;
    const place = fold.closest("[id]");
    return place ? `${place.id} ${[...place.querySelectorAll("details")].indexOf(fold)}` : "";
  };
  const keepFolds = () => {
    if (!unfolded.size) return;
    for (const fold of document.querySelectorAll(".kv-fragment details:not([open])")) {
      if (unfolded.has(foldName(fold))) fold.open = true;
    }
  };
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element)) return;
    if (event.target.closest("#chat-clear")) {
      for (const name of unfolded) if (name.startsWith("answer ")) unfolded.delete(name);
    }
    const summary = event.target.closest(".kv-fragment summary");
    if (!summary) return;
    const fold = summary.parentElement;
    unfolded[fold.open ? "delete" : "add"](foldName(fold));
  }, true);

  /* Charts name their hatching by the page's address; with another one in the bar they would lose it. */
  const setAddress = (address) => {
    window.history.replaceState(null, "", address);
    const here = window.location.href.split("#")[0];
    for (const part of document.querySelectorAll('.js-plotly-plot [style*="url("]')) {
      const place = part.style.fill.match(/#[^"')]+/);
      if (place) part.style.fill = `url("${here}${place[0]}")`;
    }
  };

  const copyLink = async (button) => {
    const line = button.closest(".kv-link");
    const told = line.querySelector(".kv-link-told");
    try {
      await copyText(line.querySelector("a").href);
      told.textContent = "Copied";
    } catch {
      told.textContent = "This browser does not let the page copy: open the link and copy its address";
    }
    setTimeout(() => { told.textContent = ""; }, 4000);
  };

  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest(".kv-act") : null;
    if (button) {
      if (button.classList.contains("kv-act-copy")) {
        copyAnswer(button);
        return;
      }
      if (button.classList.contains("kv-act-link")) {
        copyLink(button);
        return;
      }
      if (button.classList.contains("kv-act-turn")) {
        const key = [...button.classList].find((name) => name.startsWith("kv-to-")).slice("kv-to-".length);
        const choice = [...document.querySelectorAll("#compare-question input")].find((input) => input.value === key);
        if (choice) choice.click();
        return;
      }
      const action = ACTIONS.find((name) => button.classList.contains(`kv-act-${name}`));
      const field = document.querySelector("#chat-action textarea, #chat-action input");
      if (action && field) {
        asked += 1;
        type(field, `${action} ${classNumber(button)} ${asked}`);
        const box = document.querySelector("#chat-box textarea, #chat-box input");
        if (box) box.focus({ preventScroll: true });
      }
      return;
    }
    const tab = event.target instanceof Element ? event.target.closest("#kv-tabs [role=tab]") : null;
    if (tab) {
      const address = new URL(window.location.href);
      address.searchParams.set("tab", tab.textContent.trim().toLowerCase());
      setAddress(address);
    }
  });

  /* While an answer is being written Enter leaves the text where it is; the server would refuse it, too. */
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    const composer = event.target instanceof Element ? event.target.closest("#composer") : null;
    const stop = document.getElementById("chat-stop");
    if (!composer || event.target.tagName !== "TEXTAREA" || !stop || !stop.offsetParent) return;
    event.preventDefault();
    event.stopPropagation();
    composer.classList.add("kv-busy");
    setTimeout(() => composer.classList.remove("kv-busy"), 4000);
  }, true);

  /* A file that was made on request is saved as soon as its name is shown. */
  const savedFiles = new Set();
  const saveFiles = () => {
    for (const note of document.querySelectorAll(".kv-saved")) {
      if (savedFiles.has(note.title)) continue;
      savedFiles.add(note.title);
      const button = note.closest(".row, .column").querySelector(".kv-download");
      if (button) setTimeout(() => button.click(), 150);
    }
  };

  /* Settings of the chat, never texts, are kept in this browser; the server checks them when they come back. */
  const STORE = "kvdemo.chat";
  const stored = (() => { try { return window.localStorage.getItem(STORE); } catch { return null; } })();
  let restored = false;
  const rememberSettings = () => {
    const field = document.querySelector("#chat-restore textarea, #chat-restore input");
    if (!restored && field) {
      restored = true;
      if (stored) setTimeout(() => type(field, stored), 300);
    }
    const note = document.querySelector(".kv-remember");
    if (restored && note) { try { window.localStorage.setItem(STORE, note.title); } catch { /* private mode */ } }
  };

  /* The conversation and what is being typed survive a reload of this tab, by whatever cause. They stand in this tab's own
     storage and nowhere else; Clear empties it, and the server checks what comes back like a file from anybody. */
  const TAB = { conversation: "kvdemo.conversation", draft: "kvdemo.draft" };
  const inTab = {
    read: (name) => { try { return window.sessionStorage.getItem(TAB[name]) || ""; } catch { return ""; } },
    write: (name, value) => {
      try {
        if (value) window.sessionStorage.setItem(TAB[name], value); else window.sessionStorage.removeItem(TAB[name]);
      } catch { /* private mode, or full: it lives as long as the page */ }
    },
  };
  const before = { conversation: inTab.read("conversation"), draft: inTab.read("draft") };
  let askedBack = false, isBack = false, keptHere = null;
  const keepConversation = () => {
    const field = document.querySelector("#chat-bring-back textarea, #chat-bring-back input");
    const box = document.querySelector("#chat-box textarea");
    if (!askedBack && field && box) {
      askedBack = true;
      setTimeout(() => {
        if (before.draft && !box.value) type(box, before.draft);
        if (before.conversation) type(field, before.conversation);
        isBack = true;
        box.addEventListener("input", () => inTab.write("draft", box.value));
      }, 300);
    }
    if (!isBack) return;
    inTab.write("draft", box ? box.value : "");
    const note = document.querySelector("#chat-keep-here .kv-keep-here");
    if (note && note.textContent !== keptHere) {
      keptHere = note.textContent;
      inTab.write("conversation", keptHere);
    }
  };

  /* The conversation scrolls by itself only while its end is in view. */
  const followConversation = () => {
    const scroller = document.getElementById("conversation");
    if (!scroller || scroller.dataset.followed) return;
    scroller.dataset.followed = "yes";
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "log");
    scroller.setAttribute("aria-label", "Conversation");
    scroller.setAttribute("aria-live", "off");
    let atEnd = true;
    scroller.addEventListener("scroll", () => {
      atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
    }, { passive: true });
    new MutationObserver(() => {
      if (atEnd) scroller.scrollTop = scroller.scrollHeight;
    }).observe(scroller, { childList: true, subtree: true, characterData: true });
  };

  /* Gradio gives every radio button a name of its own; one name in a group gives the arrow keys back. */
  const groupRadios = () => {
    for (const radio of document.querySelectorAll('fieldset[id] input[type="radio"]')) {
      const group = radio.closest("fieldset").id;
      if (radio.name !== group) radio.name = group;
    }
  };

  /* On a phone the questions stand in one line: the chosen one is in sight, whoever chose it. */
  let lastChosen = "";
  const showQuestion = () => {
    const chosen = document.querySelector("#compare-question label.selected");
    if (!chosen || !chosen.offsetParent || chosen.textContent === lastChosen) return;
    lastChosen = chosen.textContent;
    const line = chosen.parentElement;
    line.scrollLeft += chosen.getBoundingClientRect().left - line.getBoundingClientRect().left - 3;
  };

  /* The address says Memory's numbers while they are looked at. */
  let numbers = "";
  const followNumbers = () => {
    const link = document.querySelector("#memory-link .kv-link a");
    if (!link || !link.offsetParent || link.href === numbers) return;
    numbers = link.href;
    const address = new URL(numbers);
    const theme = new URL(window.location.href).searchParams.get("__theme");
    if (theme) address.searchParams.set("__theme", theme);
    setAddress(address);
  };

  new MutationObserver(() => {
    groupRadios();
    keepFolds();
    followConversation();
    followNumbers();
    showQuestion();
    saveFiles();
    rememberSettings();
    keepConversation();
  }).observe(document.documentElement, { childList: true, subtree: true });
})();

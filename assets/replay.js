/* Watch it again: shows the chosen step of two recorded runs. It knows no words and no sums of its own: all of them stand in
   the data beside the finished pictures, which stay as they are without this script. It loads and sends nothing. */
(() => {
  "use strict";
  const SPEEDS = [["half speed", 0.5], ["real time", 1], ["5 times faster", 5]];

  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text) element.textContent = text;
    return element;
  };
  const button = (text, name, act) => {
    const element = make("button", `kv-replay-button ${name}`, text);
    element.type = "button";
    element.addEventListener("click", act);
    return element;
  };
  const lastAt = (times, now) => {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= now) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  const start = (root) => {
    root.classList.add("kv-replay-on");
    const data = JSON.parse(root.querySelector(".kv-replay-data").textContent);
    const last = data.steps.length - 1;
    const sides = [...root.querySelectorAll(".kv-replay-side")].map((element, at) => {
      const text = element.querySelector(".kv-replay-text");
      const marks = element.querySelectorAll(".kv-mark");
      return {
        ...data.sides[at], text, chars: [...text.textContent], mark: marks[0],
        clock: element.querySelector(".kv-replay-clock strong"), count: element.querySelector(".kv-replay-clock span"),
      };
    });
    const words = root.querySelector(".kv-replay-step");
    const bar = root.querySelector(".kv-replay-bar");
    let frame = last, playing = 0, began = 0, guessed = false;

    const seconds = (value) => `${value.toFixed(2)} s`;
    const drawSide = (side, at, now) => {
      const none = at < 0;
      side.text.textContent = side.chars.slice(0, none ? 0 : side.ends[at]).join("");
      side.text.scrollTop = side.text.scrollHeight;
      const made = none ? 0 : side.made[at];
      side.clock.textContent = made === side.tokens && now >= side.times[last] ? side.total : seconds(now);
      side.count.textContent = `${made} of ${side.tokens} tokens`;
      if (side.mark) {
        const tall = side.mark.ownerSVGElement.viewBox.baseVal.height;
        const row = Number(side.mark.getAttribute("height"));
        const part = none ? 0 : (Math.min(data.steps[at], side.tokens) - 1) / Math.max(1, side.tokens - 1);
        side.mark.setAttribute("y", String(Math.min(tall - row, part * (tall - row))));
      }
    };
    const show = (at) => {
      frame = at;
      slider.value = String(at);
      slider.setAttribute("aria-valuetext", `step ${data.steps[at]} of ${data.steps[last]}`);
      words.textContent = data.words[at];
      for (const side of sides) drawSide(side, at, side.times[at]);
    };
    const stop = () => {
      if (playing) cancelAnimationFrame(playing);
      playing = 0;
      play.textContent = "Play";
      words.setAttribute("aria-live", "polite");
    };
    const end = () => Math.max(...sides.map((side) => side.times[last]));
    const tick = (moment) => {
      const now = (moment - began) / 1000 * Number(speed.value);
      const at = sides.map((side) => lastAt(side.times, now));
      sides.forEach((side, which) => drawSide(side, at[which], Math.min(now, side.times[last])));
      const least = Math.min(...at);
      if (least >= 0 && least !== frame) {
        frame = least;
        slider.value = String(least);
        words.textContent = data.words[least];
      }
      if (now >= end()) { stop(); show(last); tell(); return; }
      playing = requestAnimationFrame(tick);
    };
    /* From the start, or, after a choice in the middle, from where the slower of the two was then. */
    const run = () => {
      if (playing) { stop(); return; }
      const from = frame >= last ? 0 : Math.max(...sides.map((side) => side.times[frame]));
      play.textContent = "Pause";
      words.setAttribute("aria-live", "off");
      playing = requestAnimationFrame((moment) => {
        began = moment - from * 1000 / Number(speed.value);
        tick(moment);
      });
    };

    const play = button("Play", "kv-replay-play", () => { if (guessed || !ask()) run(); });
    const step = button("Step", "kv-replay-next", () => { stop(); show(frame >= last ? 0 : frame + 1); });
    const slider = make("input", "kv-replay-slider");
    Object.assign(slider, { type: "range", min: "0", max: String(last), step: "1" });
    slider.setAttribute("aria-label", "Step");
    slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
    const speed = make("select", "kv-replay-speed");
    speed.setAttribute("aria-label", "Speed");
    for (const [text, value] of SPEEDS) speed.append(new Option(text, String(value), value === 1, value === 1));
    speed.addEventListener("change", () => { if (playing) { stop(); run(); } });
    bar.append(play, step, slider, speed);
    if (data.differs !== null) {
      bar.append(button("First token that differs", "kv-replay-differs", () => { stop(); show(Math.min(data.differs, last)); }));
    }

    /* Predict first: once, before the first Play; one click skips it. */
    const guess = make("form", "kv-replay-guess");
    const told = make("p", "kv-replay-told");
    told.setAttribute("role", "status");
    let guesses = null;
    const field = (text) => {
      const label = make("label", "", `${text} `);
      const input = make("input");
      Object.assign(input, { type: "number", min: "0", step: "any" });
      label.append(input);
      guess.append(label);
      return input;
    };
    const ask = () => {
      if (guess.isConnected || data.truth.faster === null) return false;
      guess.append(make("p", "", "Before you watch: what do you expect?"));
      const faster = field("How many times faster?");
      const less = data.truth.less === null ? null : field("How many times less computed?");
      const begin = (skipped) => {
        guessed = true;
        guesses = skipped ? null : [faster.value, less ? less.value : ""];
        guess.remove();
        play.focus(); // what had the focus is gone
        run();
      };
      const go = make("button", "kv-replay-button", "Play");
      go.type = "submit";
      guess.append(go, button("Skip", "kv-replay-skip", () => begin(true)));
      guess.addEventListener("submit", (event) => { event.preventDefault(); begin(false); });
      bar.after(guess);
      faster.focus();
      return true;
    };
    const tell = () => {
      if (!guesses) return;
      const said = [];
      if (guesses[0]) said.push(`You guessed ${guesses[0]} times faster: it was ${data.truth.faster}.`);
      if (guesses[1]) said.push(`You guessed ${guesses[1]} times less computed: it was ${data.truth.less}.`);
      told.textContent = said.join(" ");
      if (said.length) bar.after(told);
    };
    show(last);
    words.setAttribute("aria-live", "polite");
  };

  const find = () => {
    for (const holder of document.querySelectorAll(".kv-replay-holder:not(.kv-replay-placed)")) {
      holder.classList.add("kv-replay-placed");
      const packed = holder.querySelector(".kv-replay-html");
      if (packed) holder.innerHTML = JSON.parse(packed.textContent).html;
    }
    for (const root of document.querySelectorAll(".kv-replay:not(.kv-replay-on)")) start(root);
  };
  find();
  new MutationObserver(find).observe(document.documentElement, { childList: true, subtree: true });
})();

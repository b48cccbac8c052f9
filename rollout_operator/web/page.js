"use strict";
// Keeps the page live: takes news of sections, and words times. All text comes escaped.
(() => {
  const live = document.getElementById("live");
  const link = document.getElementById("link");
  const linkText = document.getElementById("link-text");
  const title = document.title;
  const skew = Number(document.body.dataset.now) - Date.now();
  const RETRY = 5000;
  // Heartbeats come every 10 s.
  const SILENCE = 25000;
  let heard = Date.now();
  let source = null;
  let isLive = false;

  const now = () => Date.now() + skew;

  const span = (seconds) => {
    const whole = Math.max(0, Math.round(seconds));
    if (whole < 60) return `${whole} s`;
    if (whole < 5400) return `${Math.round(whole / 60)} min`;
    if (whole < 172800) return `${Math.round(whole / 3600)} h`;
    return `${Math.round(whole / 86400)} days`;
  };

  const word = (form, seconds) => {
    if (form === "for") return `for ${span(-seconds)}`;
    if (form === "in") return seconds > 0 ? `in ${span(seconds)}` : "due now";
    if (seconds > 0) return `in ${span(seconds)}`;
    return `${span(-seconds)} ago`;
  };

  const wordTimes = () => {
    for (const time of live.querySelectorAll("time")) {
      if (!time.title) time.title = time.textContent;
      const text = word(time.dataset.form, (Date.parse(time.dateTime) - now()) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
  };

  const parse = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };

  // Only what has changed is replaced: selected text and the place on the page stay.
  const take = (news) => {
    const shown = new Map([...live.children].map((child) => [child.id, child]));
    for (const [id, html] of Object.entries(news.changed)) {
      const fresh = parse(html);
      if (shown.has(id)) shown.get(id).replaceWith(fresh);
      shown.set(id, fresh);
    }
    let place = live.firstElementChild;
    for (const id of news.order) {
      const child = shown.get(id);
      if (child === place) place = place.nextElementSibling;
      else live.insertBefore(child, place);
    }
    while (place) {
      const next = place.nextElementSibling;
      place.remove();
      place = next;
    }
    const summary = document.getElementById("summary");
    document.title = summary ? `${summary.dataset.title} - ${live.dataset.name}` : title;
    wordTimes();
  };

  const show = (live) => {
    isLive = live;
    link.className = live ? "link live" : "link lost";
    if (live) linkText.textContent = "live";
  };

  const lose = () => {
    if (source) source.close();
    source = null;
    show(false);
    setTimeout(connect, RETRY * (1 + Math.random()));
  };

  const connect = () => {
    source = new EventSource("status/events");
    source.addEventListener("sections", (event) => {
      heard = Date.now();
      show(true);
      take(JSON.parse(event.data));
    });
    source.addEventListener("alive", () => { heard = Date.now(); });
    source.addEventListener("error", () => {
      // Without a connection for now it tries by itself; turned away, it does not.
      if (source && source.readyState === EventSource.CLOSED) lose();
      else show(false);
    });
  };

  setInterval(() => {
    wordTimes();
    if (source && isLive && Date.now() - heard > SILENCE) lose();
    if (!isLive) linkText.textContent = `not live: as of ${span((Date.now() - heard) / 1000)} ago`;
  }, 1000);
  wordTimes();
  connect();
})();

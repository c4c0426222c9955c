// Follows a view of the console, for as long as somebody looks at it.

const RETRY_MS = 3000;
// A state comes every five seconds at the latest. A server that hangs closes no connection.
const SILENCE_MS = 15_000;

// Calls `onData` with each state of the view, `onState` with "live", "lost" or "gone". A hidden tab
// follows nothing: browsers have six connections to a console, for all tabs together.
export function follow(view, onData, onState) {
  let source = null;
  let timer = null;

  function open() {
    source = new EventSource(`api/live?view=${encodeURIComponent(view)}`);
    openAgainIn(SILENCE_MS);
    source.onmessage = (event) => {
      openAgainIn(SILENCE_MS);
      onState("live");
      onData(JSON.parse(event.data));
    };
    source.addEventListener("gone", () => {
      close();
      onState("gone");
    });
    source.onerror = () => {
      onState("lost");
      // After an answer such as 404 or 503, a browser does not try again by itself.
      if (source.readyState === EventSource.CLOSED) openAgainIn(RETRY_MS);
    };
  }

  function openAgainIn(ms) {
    clearTimeout(timer);
    timer = setTimeout(() => {
      source.close();
      onState("lost");
      open();
    }, ms);
  }

  function pause() {
    clearTimeout(timer);
    source?.close();
  }

  function look() {
    pause();
    if (!document.hidden) open();
  }

  function close() {
    pause();
    document.removeEventListener("visibilitychange", look);
  }

  document.addEventListener("visibilitychange", look);
  look();
  return close;
}

// Follows a view of the console, for as long as somebody looks at it.

const RETRY_MS = 3000;

// Calls `onData` with each state of the view, `onState` with "live", "lost" or "gone".
export function follow(view, onData, onState) {
  let source = null;
  let timer = null;
  let ended = false;

  function open() {
    source = new EventSource(`api/live?view=${encodeURIComponent(view)}`);
    source.onmessage = (event) => {
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
      if (source.readyState === EventSource.CLOSED && !ended) timer = setTimeout(open, RETRY_MS);
    };
  }

  function close() {
    ended = true;
    clearTimeout(timer);
    source?.close();
  }

  open();
  return close;
}

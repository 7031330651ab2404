// The three ways to a server that penstock.js takes. Each is one connection, which tells what it hears in the
// form of a long poll's answer: {events, next, gap?, ref?, error?}.

/** Rests between attempts: doubled each time up to the most; half of each is left to chance. */
const REST_FIRST_MS = 250;
const REST_MOST_MS = 30_000;
const POLL_S = 25;
/** Keys that make a longer query than this go by a message. */
const QUERY_MOST = 8_000;

/** What went wrong. With a `status` the server said so. */
export class PenstockError extends Error {
  constructor(message, { status = 0, hint = '', retryMs = 0 } = {}) {
    super(hint ? `${message}: ${hint}` : message);
    this.name = 'PenstockError';
    this.status = status;
    this.hint = hint;
    this.retryMs = retryMs;
  }

  /** Whether the same request would be refused again. */
  get isFinal() {
    return this.status >= 400 && this.status < 500 && ![408, 414, 425, 429].includes(this.status);
  }
}

/** How long to wait before an attempt is made again; `tries` counts from 1. */
export function restMs(tries) {
  const most = Math.min(REST_FIRST_MS * 2 ** (tries - 1), REST_MOST_MS);
  return most * (0.5 + Math.random() / 2);
}

/** One connection, from its opening to its end. Who made it sets `heard` and `ended`. */
class Line {
  isLive = false;
  heardAt = Date.now();
  #isOver = false;

  constructor(events, items, start) {
    this.events = events;
    this.items = items;
    this.start = start;
  }

  tell(answer) {
    if (!this.#isOver) this.heard(answer);
  }

  /** It has failed, or the other side has ended it. */
  end(error) {
    if (this.#isOver) return;
    this.close();
    this.ended(error);
  }

  close() {
    this.#isOver = true;
    this.stop();
  }

  get isOver() {
    return this.#isOver;
  }
}

class WebSocketLine extends Line {
  #socket = null;
  #awaited = null; // the answer to a first message that brings the keys

  async open() {
    try {
      const token = await this.events.token();
      const whole = this.events.query(this.items, this.start);
      const isLong = whole.toString().length > QUERY_MOST && !this.start.rewind && !this.start.since;
      if (this.isOver) return;
      const query = isLong ? this.events.query([], this.start) : whole;
      this.#socket = new WebSocket(this.events.address(query, 'ws'));
      this.#socket.onopen = () => this.#begin(token, isLong);
      this.#socket.onmessage = ({ data }) => this.#told(JSON.parse(data));
      this.#socket.onclose = ({ code, reason }) => this.end(new PenstockError(`closed: ${code} ${reason}`));
    } catch (error) {
      this.end(error);
    }
  }

  send(message) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  stop() {
    if (!this.#socket) return;
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.close();
  }

  #begin(token, isLong) {
    if (isLong) {
      this.#awaited = -1;
      this.send({ token, subscribe: this.items, cursor: this.start.cursor, ref: this.#awaited });
    } else if (token) {
      this.send({ token });
    }
  }

  #told(answer) {
    if (this.#awaited === null) {
      this.tell(answer);
      return;
    }
    if (answer.ref === this.#awaited) {
      this.#awaited = null;
      delete answer.ref;
    } else {
      delete answer.next; // it knows nothing of the keys yet
    }
    this.tell(answer);
  }
}

/** By fetch rather than EventSource: it can show a token in a header, and sees why it was refused. */
class SseLine extends Line {
  #stop = new AbortController();

  async open() {
    try {
      const query = this.events.query(this.items, this.start);
      const headers = { Accept: 'text/event-stream' };
      const answer = await this.events.request(query, { headers, signal: this.#stop.signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ''; ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (text + value).split('\n\n');
        text = blocks.pop();
        for (const block of blocks) this.#told(fieldsOf(block));
      }
      this.end(new PenstockError('the server ended the stream'));
    } catch (error) {
      this.end(error);
    }
  }

  stop() {
    this.#stop.abort();
  }

  #told({ id, event, data }) {
    const told = data === undefined ? null : JSON.parse(data);
    if (event === 'gap' || event === 'ping') this.tell(told);
    else if (event === 'error') this.end(new PenstockError(told.message, told));
    else this.tell({ events: told ? [told] : [], next: id });
  }
}

class PollLine extends Line {
  #stop = new AbortController();

  async open() {
    try {
      let start = { ...this.start, timeout: 0 }; // the first answer comes at once, and says that this way works
      while (!this.isOver) {
        const query = this.events.query(this.items, start);
        const answer = await this.events.request(query, { signal: this.#stop.signal });
        const told = await answer.json();
        start = { cursor: told.next, timeout: POLL_S };
        this.tell(told);
      }
    } catch (error) {
      this.end(error);
    }
  }

  stop() {
    this.#stop.abort();
  }
}

export const LINES = { websocket: WebSocketLine, sse: SseLine, longpoll: PollLine };

function fieldsOf(block) {
  return Object.fromEntries(block.split('\n').map((line) => {
    const at = line.indexOf(':');
    return [line.slice(0, at), line.slice(at + 1).replace(/^ /, '')];
  }));
}

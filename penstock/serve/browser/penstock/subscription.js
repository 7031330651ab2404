// One subscription: keys, a cursor, and the connection of the moment.
//
//     connecting ──first word──▶ live ──lost──▶ waiting ──▶ connecting …      no keys: idle; in the end: closed
//
// It takes a WebSocket, else server-sent events, else long polls, and climbs back when it can. All share one
// cursor. An event is told once, whoever brings it; what the server no longer has is told as a gap.

import { idAt, isOf, older, store, stored } from './cursors.js';
import { begins, isPrefix, itemsOf } from './keys.js';
import { LINES, PenstockError, restMs } from './lines.js';

/** A connection that lived so long has done its work: the next rest is a short one again. */
const GOOD_LIFE_MS = 10_000;
/** A way that has worked before is tried so often before the next one has its turn. */
const TRIES = 3;
/** The first word of a connection must come so soon, the next ones so often: pings come each 25 s. */
const HELLO_MS = 10_000;
const SILENCE_MS = 60_000;
const LOOK_MS = 1_000;
/** While a lesser way is in use the better ones are tried again, each time later. */
const CLIMB_FIRST_MS = 30_000;
const CLIMB_MOST_MS = 600_000;
/** So many keys are remembered with the last id that was told of each. */
const KEYS_REMEMBERED = 10_000;
/** What tells that the network or the page is back. */
const WAKERS = ['online', 'pageshow'];

/** Events as they come. Listen with `on('event' | 'gap' | 'state' | 'error', …)`. */
export class Subscription {
  #events;
  #items = new Map(); // as JSON → {item, from}: a key or a prefix, and the first id that is told of it
  #latestFrom = 0; // of all these first ids: who is behind it has no need to look at each
  #cursor;
  #start;
  #storageName;
  #state = 'idle';
  #listeners = new Map();
  #lastIds = new Map(); // key as JSON → the last id of it that was told; what was heard longest ago comes first
  // The connection, and what is known of those before it.
  #transports;
  #line = null;
  #trial = null;
  #way = 0;
  #tries = 0;
  #rests = 0;
  #renewals = 0;
  #proven = new Set();
  #climbMs = CLIMB_FIRST_MS;
  #climbAt = 0;
  #restTimer;
  #lookTimer;
  // Changes of keys that wait their turn, and the one under way.
  #waiting = [];
  #change = null;
  #refs = 0;

  constructor(events, keys, { cursor, rewind, since, remember, transports = Object.keys(LINES) } = {}) {
    if (!transports.length || transports.some((name) => !(name in LINES))) {
      throw new TypeError(`transports are some of ${Object.keys(LINES).join(', ')}`);
    }
    this.#events = events;
    this.#storageName = remember === undefined ? null : `penstock:${remember}`;
    this.#cursor = cursor ?? stored(this.#storageName);
    this.#start = this.#cursor ? {} : { rewind, since };
    this.#transports = transports;
    this.#add(itemsOf(keys), undefined);
    this.#lookTimer = setInterval(() => this.#look(), LOOK_MS);
    for (const name of WAKERS) globalThis.addEventListener?.(name, this.#wake);
    queueMicrotask(() => this.#connect()); // so that listeners can be set first
  }

  /** Where to go on later, or elsewhere: everything before it was told. */
  get cursor() {
    return this.#cursor;
  }

  get state() {
    return this.#state;
  }

  /** The way in use; null while there is none. */
  get transport() {
    return this.#line?.isLive ? this.#line.transport : null;
  }

  on(name, listener) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
    this.#listeners.get(name).add(listener);
    return this;
  }

  off(name, listener) {
    this.#listeners.get(name)?.delete(listener);
    return this;
  }

  /** Listen to more keys, from `cursor` on or from where this stands. Done when the server listens. */
  subscribe(keys, { cursor } = {}) {
    return this.#queue({ add: itemsOf(keys), remove: [], cursor });
  }

  /** Listen to these keys no more. Done when nothing of them can come. */
  unsubscribe(keys) {
    return this.#queue({ add: [], remove: itemsOf(keys) });
  }

  close() {
    if (this.#state === 'closed') return;
    this.#dropLines();
    clearTimeout(this.#restTimer);
    clearInterval(this.#lookTimer);
    for (const name of WAKERS) globalThis.removeEventListener?.(name, this.#wake);
    const left = [this.#change, ...this.#waiting];
    this.#change = null;
    this.#waiting = [];
    this.#setState('closed');
    for (const change of left) change?.reject(closed());
  }

  // Connections.

  #connect() {
    clearTimeout(this.#restTimer);
    if (this.#state === 'closed') return;
    this.#dropLines();
    this.#pump(); // without a connection changes are made at once
    if (!this.#items.size) {
      this.#cursor = null; // who listens to nothing misses nothing
      this.#setState('idle');
      return;
    }
    this.#setState('connecting');
    if (!this.#line) this.#line = this.#open(this.#way);
  }

  #open(way) {
    const start = this.#cursor ? { cursor: this.#cursor } : this.#start;
    const items = [...this.#items.values()].map(({ item }) => item);
    const line = new LINES[this.#transports[way]](this.#events, items, start);
    line.transport = this.#transports[way];
    line.heard = (answer) => this.#hear(line, answer);
    line.ended = (error) => this.#lose(line, error);
    line.open();
    return line;
  }

  #dropLines() {
    this.#line?.close();
    this.#trial?.close();
    this.#line = this.#trial = null;
  }

  #hear(line, answer) {
    line.heardAt = Date.now();
    if (answer.error && answer.ref === undefined) {
      line.end(new PenstockError(answer.error.message, answer.error));
      return;
    }
    if (!line.isLive && answer.next) this.#arrive(line, answer);
    if (answer.ref && answer.ref === this.#change?.ref) this.#settle(answer.error);
    this.#take(answer);
    this.#pump();
  }

  /** A connection said its first word: it is the one from now on. */
  #arrive(line, { events, next }) {
    line.isLive = true;
    line.liveAt = Date.now();
    if (line === this.#trial) {
      this.#line?.close();
      this.#line = line;
      this.#trial = null;
      clearTimeout(this.#restTimer);
      this.#climbMs = CLIMB_FIRST_MS;
    }
    this.#way = this.#transports.indexOf(line.transport);
    this.#proven.add(line.transport);
    this.#tries = this.#renewals = 0;
    this.#climbAt = Date.now() + this.#climbMs;
    const first = Math.min(idAt(next), ...events.map(({ id }) => id));
    for (const each of this.#items.values()) each.from ??= first;
    this.#latestFrom = Math.max(this.#latestFrom, first);
    if (this.#change) this.#settle(); // this connection was opened with the keys as they are now
    this.#setState('live');
  }

  #lose(line, error) {
    if (line === this.#trial) {
      this.#climbLater(this.#transports.indexOf(line.transport) + 1);
      return;
    }
    this.#line = null;
    if (error?.isFinal) {
      this.#refused(error);
    } else if (line.isLive) {
      if (Date.now() - line.liveAt > GOOD_LIFE_MS) this.#rests = 0;
      this.#way = 0;
      this.#rest(error);
    } else if (this.#proven.has(line.transport) && (this.#tries += 1) < TRIES) {
      this.#rest(error);
    } else {
      this.#tries = 0;
      this.#way = (this.#way + 1) % this.#transports.length;
      if (this.#way) this.#connect();
      else this.#rest(error);
    }
  }

  #refused(error) {
    if (error.status === 401 && this.#events.canRenew && this.#renewals < TRIES) {
      this.#renewals += 1;
      this.#rest(error);
    } else if (this.#change) {
      this.#settle(error);
      this.#connect();
    } else {
      this.#emit('error', error);
      this.close();
    }
  }

  #rest(error) {
    this.#setState('waiting');
    this.#rests += 1;
    const ms = Math.max(restMs(this.#rests), error?.retryMs ?? 0);
    this.#restTimer = setTimeout(() => this.#connect(), ms);
  }

  /** The network is back, or the page: a connection of before is most likely dead. */
  #wake = ({ type, persisted }) => {
    if (this.#state === 'idle' || (type === 'pageshow' && !persisted)) return;
    this.#way = this.#rests = this.#tries = 0;
    this.#dropLines();
    clearTimeout(this.#restTimer);
    this.#rest();
  };

  /** Once a second: has the connection been silent for too long, may a better one be tried? */
  #look() {
    const now = Date.now();
    for (const line of [this.#line, this.#trial]) {
      if (line && now - line.heardAt > (line.isLive ? SILENCE_MS : HELLO_MS)) {
        line.end(new PenstockError('the server is silent'));
      }
    }
    if (this.#state === 'live' && this.#way && !this.#trial && !this.#change && now >= this.#climbAt) {
      this.#trial = this.#open(0);
    }
  }

  /** A better way was tried in vain: the next one, or all of them later. */
  #climbLater(way) {
    this.#trial = null;
    if (way < this.#way) {
      this.#trial = this.#open(way);
      return;
    }
    this.#climbMs = Math.min(this.#climbMs * 2, CLIMB_MOST_MS);
    this.#climbAt = Date.now() + this.#climbMs;
  }

  // What was heard.

  #take({ events = [], next, gap }) {
    if (gap) {
      if (gap.reason === 'epoch' || gap.reason === 'ahead') this.#beginAnew();
      this.#emit('gap', gap);
    }
    for (const event of events) {
      if (this.#isNew(event)) this.#emit('event', event);
    }
    // While a change of keys is under way it stands still: a cut would leave out what is old of the new keys.
    if (next && !this.#change) {
      this.#cursor = next;
      store(this.#storageName, next);
    }
  }

  /** Ids of one key grow, whatever the others do while old events of new keys are read. */
  #isNew({ id, key }) {
    const name = JSON.stringify(key);
    if (id <= (this.#lastIds.get(name) ?? 0)) return false;
    if (id < this.#latestFrom && id < this.#firstId(key, name)) return false;
    this.#lastIds.delete(name);
    this.#lastIds.set(name, id);
    if (this.#lastIds.size > KEYS_REMEMBERED) this.#lastIds.delete(this.#lastIds.keys().next().value);
    return true;
  }

  /** From where a key is listened to, by itself or by a prefix. */
  #firstId(key, name) {
    const found = [...this.#items.values()].filter(({ item }) => isPrefix(item) && begins(key, item.prefix));
    if (this.#items.has(name)) found.push(this.#items.get(name));
    return found.length ? Math.min(...found.map(({ from }) => from ?? 0)) : 0;
  }

  /** The topic was made anew, and its ids begin again. */
  #beginAnew() {
    this.#lastIds.clear();
    this.#latestFrom = 0;
    for (const each of this.#items.values()) each.from = 0;
  }

  // Changes of keys, one after the other.

  #queue(change) {
    if (this.#state === 'closed') return Promise.reject(closed());
    const done = new Promise((resolve, reject) => Object.assign(change, { resolve, reject }));
    this.#waiting.push(change);
    if (this.#state === 'idle') this.#connect();
    else this.#pump();
    return done;
  }

  #pump() {
    while (this.#waiting.length && !this.#change && (!this.#line || this.#line.isLive)) {
      const change = (this.#change = this.#waiting.shift());
      change.before = new Map(this.#items);
      for (const item of change.remove) this.#items.delete(JSON.stringify(item));
      change.cursor ??= this.#cursor;
      const from = change.cursor && isOf(change.cursor, this.#cursor) ? idAt(change.cursor) : undefined;
      change.added = this.#add(change.add, from);
      this.#forget(change.remove);
      this.#trial?.close(); // it was opened with other keys
      this.#trial = null;
      this.#make(change);
    }
  }

  #make(change) {
    const { remove, added, cursor } = change;
    if (!this.#items.size) {
      this.#settle();
      if (this.#line) this.#connect();
      return;
    }
    if (this.#line?.send) {
      change.ref = this.#refs += 1;
      const more = added.length ? { subscribe: added, cursor: cursor ?? undefined } : {};
      this.#line.send({ unsubscribe: remove, ...more, ref: change.ref });
    } else if (!isOf(cursor, this.#cursor)) {
      this.#emit('gap', { reason: 'epoch', first: null, stop: null });
    }
    // A connection that is opened before this is done begins with what is oldest of all keys.
    if (added.length) this.#cursor = older(cursor, this.#cursor);
    if (this.#line && !this.#line.send) this.#connect();
  }

  #settle(error) {
    const change = this.#change;
    this.#change = null;
    if (error) {
      this.#items = change.before;
      change.reject(error instanceof Error ? error : new PenstockError(error.message, error));
    } else {
      change.resolve();
    }
  }

  /** The items that were not there. */
  #add(items, from) {
    const added = items.filter((item) => !this.#items.has(JSON.stringify(item)));
    for (const item of added) this.#items.set(JSON.stringify(item), { item, from });
    this.#latestFrom = Math.max(this.#latestFrom, from ?? 0);
    return added;
  }

  /** Who comes back to a key may hear again what it heard then. */
  #forget(items) {
    for (const item of items) {
      if (!isPrefix(item)) this.#lastIds.delete(JSON.stringify(item));
    }
  }

  // Telling the page.

  #setState(state) {
    if (state === this.#state) return;
    this.#state = state;
    this.#emit('state', state);
  }

  #emit(name, detail) {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        listener(detail, this);
      } catch (error) {
        reportError(error); // a listener's fault must not end the stream
      }
    }
  }
}

function closed() {
  return new PenstockError('the subscription is closed');
}

// Live events of a Penstock server, for pages. No build step, no dependencies.
//
//     import { Events } from '/penstock.js';
//
//     const live = new Events();
//     live.subscribe(['news', ['chat', 345]], { rewind: 10 })
//       .on('event', (event) => show(event.data))
//       .on('gap', (gap) => location.reload());
//     await live.push(['chat', 345], { text: 'hello' });
//
// A subscription outlives its connections (penstock/subscription.js), which are of three kinds
// (penstock/lines.js).
//
// @ts-self-types="./penstock.d.ts"

import { itemsOf } from './penstock/keys.js';
import { PenstockError, restMs } from './penstock/lines.js';
import { Subscription } from './penstock/subscription.js';

export { PenstockError, Subscription };

const PUSH_TRIES = 8;

/** The live events of a server; by default of the one that this module comes from. */
export class Events {
  #url;
  #topic;
  #token;
  #credentials;

  constructor({ url = new URL('.', import.meta.url), topic, token, credentials = 'same-origin' } = {}) {
    const base = new URL(url, globalThis.document?.baseURI ?? import.meta.url);
    if (!base.pathname.endsWith('/')) base.pathname += '/';
    this.#url = new URL('v1/events', base);
    this.#topic = topic;
    this.#token = token;
    this.#credentials = credentials;
  }

  /** Store an event. It is on the server's disk when this is done, once, however often it had to be sent. */
  push(key, data = null, options = {}) {
    return this.pushMany([[key, data]], options);
  }

  /** Store several events, all or none. The answer's `cursor` stands just before the first of them. */
  async pushMany(events, { audience } = {}) {
    const body = JSON.stringify(events.map(([key, data = null]) => ({ key, data, audience })));
    const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': randomName() };
    for (let tries = 1; ; tries += 1) {
      try {
        const pushed = await (await this.request(this.query([]), { method: 'POST', body, headers })).json();
        return { ...pushed, cursor: `${pushed.epoch}.${pushed.first}` };
      } catch (error) {
        if (error.isFinal || tries === PUSH_TRIES) throw error;
        const ms = Math.max(restMs(tries), error.retryMs ?? 0);
        await new Promise((resolve) => setTimeout(resolve, ms));
      }
    }
  }

  /** Read once what is there of these keys: `{events, next, min, gap?}`; `next` is a cursor to go on from. */
  async read(keys, { cursor, rewind, since, limit } = {}) {
    const query = this.query(itemsOf(keys), { cursor, rewind, since, limit, timeout: 0 });
    return (await this.request(query)).json();
  }

  /** Hear events of these keys, from now or from where the options say, until `close`. */
  subscribe(keys, options = {}) {
    return new Subscription(this, keys, options);
  }

  // What subscriptions and their connections need.

  /** @internal */
  query(items, more) {
    const query = new URLSearchParams();
    for (const item of items) {
      const [name, key] = item.prefix === undefined ? ['key', item] : ['prefix', item.prefix];
      query.append(name, typeof key === 'string' ? key : JSON.stringify(key));
    }
    for (const [name, value] of Object.entries({ topic: this.#topic, ...more })) {
      if (value !== undefined && value !== null) query.append(name, value);
    }
    return query;
  }

  /** @internal */
  address(query, scheme = '') {
    const url = new URL(this.#url);
    if (scheme) url.protocol = url.protocol.replace('http', scheme);
    url.search = query;
    return url;
  }

  /** @internal */
  async request(query, { headers = {}, ...options } = {}) {
    const token = await this.token();
    if (token) headers = { ...headers, Authorization: `Bearer ${token}` };
    const answer = await fetch(this.address(query), {
      cache: 'no-store', credentials: this.#credentials, headers, ...options,
    });
    if (answer.ok) return answer;
    throw await refusal(answer);
  }

  /** @internal */
  async token() {
    return typeof this.#token === 'function' ? this.#token() : this.#token;
  }

  /** @internal */
  get canRenew() {
    return typeof this.#token === 'function';
  }
}

async function refusal(answer) {
  const told = await answer.json().catch(() => ({}));
  const { message = `the server answered ${answer.status}`, hint } = told.error ?? {};
  const retryMs = 1000 * (Number(answer.headers.get('Retry-After')) || 0);
  return new PenstockError(message, { status: answer.status, hint, retryMs });
}

/** Not `randomUUID`: pages without TLS have none. */
function randomName() {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join('-');
}

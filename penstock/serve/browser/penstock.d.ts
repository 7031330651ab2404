// Types of penstock.js.

/** A text, or an array of identifiers: `'news'`, `['chat', 345]`. */
export type Key = string | readonly (string | number | boolean | null)[];
/** All keys that begin so. */
export type Prefix = { readonly prefix: Key };
export type Transport = 'websocket' | 'sse' | 'longpoll';
export type State = 'idle' | 'connecting' | 'live' | 'waiting' | 'closed';

export interface Event<Data = any> {
  /** Grows with each event of the topic. */
  readonly id: number;
  /** When it was stored, in seconds since 1970. */
  readonly time: number;
  readonly key: Key;
  readonly data: Data;
}

/** Ids from `first` up to `stop`, if they are known, that will not come, and why. */
export interface Gap {
  readonly reason: 'retention' | 'damage' | 'epoch' | 'ahead';
  readonly first: number | null;
  readonly stop: number | null;
}

export interface Pushed {
  readonly epoch: string;
  readonly first: number;
  readonly last: number;
  /** Who subscribes with it hears these events first, then all that follow. */
  readonly cursor: string;
}

export interface Answer<Data = any> {
  readonly events: Event<Data>[];
  /** The cursor to go on from. */
  readonly next: string;
  /** The oldest id that is still stored. */
  readonly min: number;
  readonly gap?: Gap;
}

export interface EventsOptions {
  /** The server's address; by default where the module comes from. */
  url?: string | URL;
  topic?: string;
  /** A token, or a function that gives a fresh one each time it is needed. */
  token?: string | (() => string | Promise<string>);
  /** `'include'` sends cookies to a server of another origin. */
  credentials?: RequestCredentials;
}

/** Where to begin: at most one of these; from now without any. */
export interface Start {
  cursor?: string | null;
  /** With the last so many events of these keys. */
  rewind?: number;
  /** So long ago (`'10m'`), or at a moment. */
  since?: string;
}

export interface SubscribeOptions extends Start {
  /** Remember the cursor under this name for as long as the tab is open; it counts where no `cursor` is given. */
  remember?: string;
  /** The ways to take, the best first. */
  transports?: readonly Transport[];
}

/** The live events of a server. */
export class Events {
  constructor(options?: EventsOptions);
  /** Store an event; done when it is on the server's disk. */
  push(key: Key, data?: unknown, options?: { audience?: string | string[] }): Promise<Pushed>;
  /** Store several events, all or none. */
  pushMany(
    events: readonly (readonly [Key, unknown?])[], options?: { audience?: string | string[] },
  ): Promise<Pushed>;
  /** Read once what is there. */
  read<Data = any>(
    keys: string | readonly (Key | Prefix)[], options?: Start & { limit?: number },
  ): Promise<Answer<Data>>;
  /** Hear events of these keys until `close`. */
  subscribe<Data = any>(
    keys: string | readonly (Key | Prefix)[], options?: SubscribeOptions,
  ): Subscription<Data>;
}

/** Events as they come; made by `Events.subscribe`. */
export class Subscription<Data = any> {
  private constructor();
  /** Where to go on later: everything before it was told. */
  readonly cursor: string | null;
  readonly state: State;
  /** The way in use; null while there is none. */
  readonly transport: Transport | null;
  on(name: 'event', listener: (event: Event<Data>, subscription: this) => void): this;
  /** Something was missed for good: load anew what the page shows. */
  on(name: 'gap', listener: (gap: Gap, subscription: this) => void): this;
  on(name: 'state', listener: (state: State, subscription: this) => void): this;
  /** The server refused, and this is closed. */
  on(name: 'error', listener: (error: PenstockError, subscription: this) => void): this;
  off(name: 'event' | 'gap' | 'state' | 'error', listener: (...told: any[]) => void): this;
  /** Listen to more keys; done when the server listens, and what is old of them was told. */
  subscribe(keys: string | readonly (Key | Prefix)[], options?: { cursor?: string }): Promise<void>;
  /** Listen to these no more. */
  unsubscribe(keys: string | readonly (Key | Prefix)[]): Promise<void>;
  close(): void;
}

/** What went wrong; `status` is the server's, or 0. */
export class PenstockError extends Error {
  constructor(message: string, facts?: { status?: number; hint?: string; retryMs?: number });
  readonly status: number;
  readonly hint: string;
  /** How long the server asks to wait. */
  readonly retryMs: number;
  /** Whether the same request would be refused again. */
  readonly isFinal: boolean;
}

// Keys and prefixes, as pages name them and as the server spells them.

/** Keys and prefixes as the server spells them: a text that begins with `[` is an array. */
export function itemsOf(keys) {
  return (typeof keys === 'string' ? [keys] : [...keys]).map((item) => (
    isPrefix(item) ? { prefix: spelled(item.prefix) } : spelled(item)
  ));
}

function spelled(key) {
  return typeof key === 'string' && key.startsWith('[') ? JSON.parse(key) : key;
}

export function isPrefix(item) {
  return typeof item === 'object' && !Array.isArray(item);
}

/** Whether a key begins so: a text with these letters, an array with these elements. */
export function begins(key, prefix) {
  if (typeof prefix === 'string') {
    return (typeof key === 'string' ? key : JSON.stringify(key)).startsWith(prefix);
  }
  return Array.isArray(key)
    && prefix.every((part, at) => at < key.length && JSON.stringify(part) === JSON.stringify(key[at]));
}

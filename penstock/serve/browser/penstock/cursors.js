// Cursors, and the page's own memory of one. A page never looks into a cursor; this client compares them.

/** The id of the next event behind a cursor. */
export function idAt(cursor) {
  return Number(cursor.slice(cursor.lastIndexOf('.') + 1));
}

/** Whether two cursors can be compared: ids of another epoch say nothing here. */
export function isOf(one, other) {
  return !one || !other || one.split('.')[0] === other.split('.')[0];
}

export function older(one, other) {
  if (!one || !other) return one || other || null;
  return isOf(one, other) && idAt(one) < idAt(other) ? one : other;
}

/** The storage may be switched off: then a page that is loaded again begins from now. */
export function stored(name) {
  try {
    return name && sessionStorage.getItem(name);
  } catch {
    return null;
  }
}

export function store(name, cursor) {
  try {
    if (name) sessionStorage.setItem(name, cursor);
  } catch {
    // see `stored`
  }
}

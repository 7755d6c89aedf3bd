// Errors with their parts, as RLX reports them.

/** An error of RLX: `kind` says what is wrong (`Shape`, `Unsupported`, `Device`, …), `hint` what to do next. */
export class RlxError extends Error {
  constructor(kind, message, { hint, device, node, origin, cause } = {}) {
    super(hint ? `${message}\n  hint: ${hint}` : message, cause === undefined ? undefined : { cause });
    this.name = 'RlxError';
    Object.assign(this, { kind, hint, device, node, origin });
  }
}

/** What the module throws, as an `RlxError`; anything else as it is. */
export function asError(thrown) {
  if (thrown instanceof Error || thrown?.kind === undefined) return thrown;
  // The module's text has the hint in it already, on lines of its own.
  const error = new RlxError(thrown.kind, thrown.message, { ...thrown, hint: undefined });
  error.hint = thrown.hint;
  return error;
}

// BERT's tokenizer for lower-case English: words and punctuation, then the longest known pieces.

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}]/u;

export class WordPiece {
  /** @param vocabulary one piece a line; the line's number is its id */
  constructor(vocabulary) {
    this.ids = new Map(vocabulary.split('\n').map((piece, id) => [piece.trimEnd(), id]));
  }

  /** The ids of a text, between [CLS] and [SEP]. */
  encode(text) {
    const pieces = this.#words(text).flatMap((word) => this.#pieces(word));
    return ['[CLS]', ...pieces, '[SEP]'].map((piece) => this.ids.get(piece));
  }

  /** Lower-case words without accents; each sign of punctuation is a word. */
  #words(text) {
    const plain = text.toLowerCase().normalize('NFD').replace(/\p{Mn}/gu, '');
    const spaced = Array.from(plain, (sign) => {
      if (/\s/u.test(sign)) return ' ';
      if (/\p{C}/u.test(sign)) return '';
      return PUNCTUATION.test(sign) || /\p{Script=Han}/u.test(sign) ? ` ${sign} ` : sign;
    });
    return spaced.join('').split(' ').filter(Boolean);
  }

  #pieces(word) {
    if (word.length > 100) return ['[UNK]'];
    const found = [];
    for (let from = 0; from < word.length; ) {
      let to = word.length;
      const piece = () => (from > 0 ? '##' : '') + word.slice(from, to);
      while (to > from && !this.ids.has(piece())) to--;
      if (to === from) return ['[UNK]'];
      found.push(piece());
      from = to;
    }
    return found;
  }
}

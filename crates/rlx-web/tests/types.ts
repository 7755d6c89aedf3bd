// Compiled, not run: the package's types as a program meets them.
import { RlxError, Tensor, devices, load, type Progress } from '../rlx/index.js';

export async function classify(image: Float32Array, signal: AbortSignal): Promise<number> {
  const model = await load('digits.onnx', {
    device: 'auto',
    dims: { batch: 1 },
    signal,
    onProgress: ({ stage, done, total }: Progress) => console.log(stage, done / total),
    onFallback: (reason: RlxError) => console.log(reason.kind, reason.hint),
  });
  const { probabilities } = await model.run({ image: new Tensor(image, [1, 1, 8, 8]) }, { signal });
  const values: ArrayLike<number | bigint> | undefined = probabilities?.data;
  const ids = new Tensor(BigInt64Array.of(1n, 2n), [1, 2], 'i64');
  const exact: BigInt64Array = ids.data;
  // @ts-expect-error A device that pages do not have.
  await load('digits.onnx', { device: 'cuda' });
  const names: string[] = (await devices()).map(({ name }) => name);
  model.free();
  return Number(values?.[0] ?? exact[0]) + names.length;
}

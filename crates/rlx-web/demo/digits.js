import * as rlx from '../rlx/index.js';

const pad = document.getElementById('pad');
const pen = pad.getContext('2d', { willReadFrequently: true });
const status = document.getElementById('status');
const answer = document.getElementById('answer');
const meters = Array.from({ length: 10 }, (_, digit) => {
  const [label, meter, share] = ['span', 'meter', 'span'].map((tag) => document.createElement(tag));
  label.textContent = digit;
  document.getElementById('bars').append(label, meter, share);
  return { meter, share };
});

/** The drawing as the model was trained on: 8×8 shares of light, what is drawn as large as the picture. */
function picture() {
  const { width, height } = pad;
  const light = pen.getImageData(0, 0, width, height).data;
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (light[4 * (y * width + x)] > 0) {
        [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
      }
    }
  }
  if (right < 0) return undefined;
  // Square, and centred where it is narrow.
  const size = Math.max(right - left, bottom - top) + 1;
  const [x0, y0] = [(left + right + 1 - size) / 2, (top + bottom + 1 - size) / 2];
  const out = new Float32Array(64);
  const cell = size / 8;
  for (let i = 0; i < 64; i++) {
    const [fx, fy] = [x0 + (i % 8) * cell, y0 + Math.floor(i / 8) * cell];
    let [sum, count] = [0, 0];
    for (let y = Math.floor(fy); y < fy + cell; y++) {
      for (let x = Math.floor(fx); x < fx + cell; x++) {
        sum += x < 0 || y < 0 || x >= width || y >= height ? 0 : light[4 * (y * width + x)];
        count++;
      }
    }
    out[i] = sum / count / 255;
  }
  return out;
}

let model;
async function recognise() {
  const image = picture();
  if (!image || !model) return;
  const start = performance.now();
  const { probabilities } = await model.run({ image: new rlx.Tensor(image, [1, 1, 8, 8]) });
  const took = performance.now() - start;
  const best = probabilities.data.indexOf(Math.max(...probabilities.data));
  meters.forEach(({ meter, share }, digit) => {
    meter.value = probabilities.data[digit];
    share.textContent = `${(100 * probabilities.data[digit]).toFixed(1)} %`;
  });
  answer.textContent = `This is a ${best}.`;
  answer.dataset.digit = best;
  status.textContent = `${took.toFixed(1)} ms on ${model.device}`;
}

let drawing = false;
function draw(event) {
  if (!drawing) return;
  pen.lineTo(event.offsetX, event.offsetY);
  pen.stroke();
}
pen.lineWidth = 26;
pen.lineCap = pen.lineJoin = 'round';
pen.strokeStyle = '#fff';
pad.addEventListener('pointerdown', (event) => {
  drawing = true;
  pad.setPointerCapture(event.pointerId);
  pen.beginPath();
  pen.moveTo(event.offsetX, event.offsetY);
  draw(event);
});
pad.addEventListener('pointermove', draw);
pad.addEventListener('pointerup', (event) => {
  draw(event);
  drawing = false;
  recognise();
});
document.getElementById('clear').addEventListener('click', () => {
  pen.clearRect(0, 0, pad.width, pad.height);
  answer.textContent = '';
  delete answer.dataset.digit;
});

try {
  const wanted = new URLSearchParams(location.search).get('device') ?? 'auto';
  model = await rlx.load('../models/digits/digits.onnx', {
    device: wanted,
    onProgress: ({ stage, done, total }) => (status.textContent = `${stage} ${done}${total ? ` of ${total}` : ''}`),
    onFallback: (reason) => console.info(`WebGPU is not used: ${reason.message}`),
  });
  status.textContent = `Ready on ${model.device}${model.fallback ? ` (${model.fallback.message})` : ''}.`;
  document.body.dataset.ready = 'true';
  await recognise();
} catch (error) {
  status.className = 'wrong';
  status.textContent = error.message;
}

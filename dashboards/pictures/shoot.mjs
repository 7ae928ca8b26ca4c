// Takes pictures of a page on the disk with a headless Chromium.
//
//   node shoot.mjs ORDER.json
//
// ORDER: {chromium, libraries, page, shots: [{picture, width, height, dark}]}; without a height the whole page.
// Writes to standard output one line of JSON per picture: {picture, width, messages}, where width is the page's own.
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const order = JSON.parse(await readFile(process.argv[2], 'utf8'));
const puppeteer = createRequire(path.join(order.libraries, 'package.json'))('puppeteer-core');

const browser = await puppeteer.launch({
  executablePath: order.chromium,
  args: ['--no-sandbox', '--force-color-profile=srgb', '--font-render-hinting=none', '--hide-scrollbars'],
});
try {
  for (const { picture, width, height, dark } of order.shots) {
    const page = await browser.newPage();
    const messages = [];
    page.on('request', (request) => request.url().startsWith('file:') || messages.push(`asks for ${request.url()}`));
    page.on('pageerror', (error) => messages.push(String(error)));
    page.on('console', (message) => message.type() === 'error' && messages.push(message.text()));
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }]);
    await page.setViewport({ width, height: height ?? 800 });
    await page.goto(pathToFileURL(order.page).href);
    await page.screenshot({ path: picture, fullPage: height === undefined || height === null });
    const own = await page.evaluate(() => document.documentElement.scrollWidth);
    process.stdout.write(`${JSON.stringify({ picture, width: own, messages })}\n`);
    await page.close();
  }
} finally {
  await browser.close();
}

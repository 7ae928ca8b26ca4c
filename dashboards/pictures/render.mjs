// Draws dashboards with Grafana's libraries in a headless Chromium.
//
//   node render.mjs ORDER.json
//
// ORDER: {chromium, prometheus, scrapeSeconds, range: {from, to}, width, libraries, boards: [{file, picture}]}.
// Writes the pictures, and to standard output one line of JSON per dashboard: {file, panels, empty, links, asked, messages}.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';

const here = import.meta.dirname;
const order = JSON.parse(await readFile(process.argv[2], 'utf8'));
const require = createRequire(path.join(order.libraries, 'package.json'));
const esbuild = require('esbuild');
const puppeteer = require('puppeteer-core');

const PAGE = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">
<style>html, body { overflow: visible !important; height: auto } #root { padding: 8px 16px 16px }
.dashboard-title { font-size: 20px; margin: 4px 0 0 }</style>
<script>window.__grafana_public_path__ = '/public/';</script>
<div id="root"></div><script src="/page.js"></script>`;
// Of the libraries: that no Grafana server introduced itself, and for each file that isn't there a second complaint.
const HARMLESS = /grafanaBootData|Failed to load resource/;
const ROW = 38; // pixels of Grafana's grid, the gap included
const PATIENCE = 15_000; // milliseconds until a dashboard has to be drawn
const TOP = 120; // title and variables

// The scenes ask the schema for defaults that its module doesn't export. Nothing here uses them.
const tableDefaults = {
  name: 'table-defaults',
  setup(build) {
    build.onLoad({ filter: /table\/panelcfg\/x\/types\.gen\.mjs$/ }, async ({ path: file }) => ({
      contents: `${await readFile(file, 'utf8')}\nexport const defaultOptions = {};`,
    }));
  },
};

async function bundle() {
  const result = await esbuild.build({
    entryPoints: [path.join(here, 'page.jsx')],
    outfile: 'page.js',
    nodePaths: [path.join(order.libraries, 'node_modules')],
    bundle: true, write: false, format: 'iife', jsx: 'automatic', minify: false, logLevel: 'error',
    plugins: [tableDefaults],
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
    loader: { '.ttf': 'dataurl', '.woff': 'dataurl', '.woff2': 'dataurl', '.svg': 'dataurl', '.png': 'dataurl' },
  });
  return Object.fromEntries(result.outputFiles.map((file) => [`/${path.basename(file.path)}`, file.contents]));
}

// Where the libraries expect Grafana's server to keep icons and fonts, and where they lie here.
const STATIC = [
  [/^.*\/angle-double-left\.svg$/, '@grafana/ui/dist/public/img/icons/unicons/angle-left.svg'], // the one that it lacks
  [/^\/public\/build\/img\//, '@grafana/ui/dist/public/img/'],
  [/^\/public\/fonts\/inter\/Inter-Regular\.woff2$/, '@fontsource/inter/files/inter-latin-400-normal.woff2'],
  [/^\/public\/fonts\/inter\/Inter-Medium\.woff2$/, '@fontsource/inter/files/inter-latin-500-normal.woff2'],
  [/^\/public\/fonts\/roboto\/.*\.woff2$/, '@fontsource/roboto-mono/files/roboto-mono-latin-400-normal.woff2'],
];
const TYPES = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.woff2': 'font/woff2' };

async function serve(files) {
  const server = createServer(async (request, response) => {
    const name = new URL(request.url, 'http://page').pathname;
    try {
      const [from, to] = STATIC.find(([from]) => from.test(name)) ?? [];
      const file = from && path.join(order.libraries, 'node_modules', path.normalize(name.replace(from, to)));
      const body = name === '/' ? PAGE : file ? await readFile(file) : files[name];
      const type = TYPES[path.extname(name)] ?? 'text/html';
      response.writeHead(body ? 200 : 404, { 'Content-Type': type }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

async function draw(browser, url, { file, picture }) {
  const dashboard = JSON.parse(await readFile(file, 'utf8'));
  const page = await browser.newPage();
  const messages = [];
  page.on('response', (response) => response.ok() || messages.push(`${response.status()} ${response.url()}`));
  page.on('pageerror', (error) => messages.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && !HARMLESS.test(message.text()) && messages.push(message.text()));
  const height = TOP + ROW * Math.max(...dashboard.panels.map(({ gridPos: { y, h } }) => y + h));
  await page.setViewport({ width: order.width, height });
  await page.goto(url);
  const { prometheus, scrapeSeconds, range } = order;
  await page.evaluate((given) => window.draw(given), { dashboard, prometheus, scrapeSeconds, range, dark: true });
  await page
    .waitForFunction(() => window.report().settled, { timeout: PATIENCE, polling: 250 })
    .catch((error) => messages.push(error.message)); // what is not settled stands in the report
  await new Promise((resolve) => setTimeout(resolve, 1500)); // legends and tables take a moment to find their size
  await page.screenshot({ path: picture, optimizeForSpeed: false });
  const report = await page.evaluate(() => window.report());
  await page.close();
  return { file, ...report, messages };
}

const server = await serve(await bundle());
const browser = await puppeteer.launch({
  executablePath: order.chromium,
  args: ['--no-sandbox', '--force-color-profile=srgb', '--font-render-hinting=none', '--hide-scrollbars'],
});
try {
  for (const board of order.boards) {
    const report = await draw(browser, `http://127.0.0.1:${server.address().port}/`, board);
    process.stdout.write(`${JSON.stringify(report)}\n`);
  }
} finally {
  await browser.close();
  server.close();
}

// Grafana's data source for Prometheus leaves the asking and the reading of answers to Grafana's server. Here the
// browser does both, and makes frames of the answers as that server does.
import { FieldType, createDataFrame } from '@grafana/data';
import { RuntimeDataSource, sceneGraph } from '@grafana/scenes';

const escape = (value) => value.replace(/\\/g, '\\\\').replace(/[$^*{}[\]'+?.()|]/g, '\\\\$&');
const asRegexp = (value) =>
  Array.isArray(value) ? (value.length === 1 ? escape(value[0]) : `(${value.map(escape).join('|')})`) : escape(String(value));
const seconds = (ms) => `${Math.max(1, Math.round(ms / 1000))}s`;

export class Prometheus extends RuntimeDataSource {
  constructor(url, scrapeSeconds, asked) {
    super('prometheus', 'prometheus');
    this.name = 'Prometheus';
    this.url = url;
    this.scrape = scrapeSeconds * 1000;
    this.asked = asked; // what was asked, with what came back, for the report
  }

  async query(request) {
    const scene = request.scopedVars.__sceneObject.value.valueOf();
    const step = Math.max(request.intervalMs, this.scrape);
    const window = {
      __interval: seconds(step),
      __rate_interval: seconds(Math.max(step + this.scrape, 4 * this.scrape)),
      __range: seconds(request.range.to - request.range.from),
    };
    const scoped = { ...request.scopedVars };
    for (const [name, value] of Object.entries(window)) {
      scoped[name] = { text: value, value };
    }
    const tables = request.targets.filter((target) => target.format === 'table').length;
    const answers = request.targets.map(async (target) => {
      const expr = sceneGraph.interpolate(scene, target.expr, scoped, asRegexp);
      const note = { panel: scene.parent?.state.key ?? scene.state.key, letter: target.refId, expr, series: 0 };
      this.asked.push(note);
      try {
        const times = target.range
          ? { start: request.range.from / 1000, end: request.range.to / 1000, step: step / 1000 }
          : { time: request.range.to / 1000 };
        const result = await this.get(target.range ? 'query_range' : 'query', { query: expr, ...times });
        note.series = result.result.length;
        return target.format === 'table'
          ? table(result.result, target.refId, tables)
          : result.result.map((series) => lines(series, target));
      } catch (error) {
        note.error = error.message;
        throw error;
      }
    });
    return { data: (await Promise.all(answers)).flat() };
  }

  async metricFindQuery(query, options) {
    const text = typeof query === 'string' ? query : query.query;
    const scene = options.scopedVars.__sceneObject.value.valueOf();
    const [, series, label] = sceneGraph.interpolate(scene, text, options.scopedVars, asRegexp).match(/^label_values\((.*), (\w+)\)$/);
    const values = await this.get(`label/${label}/values`, { 'match[]': series });
    return values.map((value) => ({ text: value }));
  }

  async get(endpoint, parameters) {
    const response = await fetch(`${this.url}/api/v1/${endpoint}?${new URLSearchParams(parameters)}`);
    const body = await response.json();
    if (body.status !== 'success') {
      throw new Error(body.error);
    }
    return body.data;
  }
}

function lines(series, target) {
  const { __name__: name, ...labels } = series.metric;
  const values = series.values ?? [series.value];
  const legend = target.legendFormat === '__auto' ? '' : target.legendFormat?.replace(/{{\s*(\w+)\s*}}/g, (_, label) => labels[label] ?? '');
  return createDataFrame({
    refId: target.refId,
    name: legend || name,
    fields: [
      { name: 'Time', type: FieldType.time, values: values.map(([time]) => time * 1000) },
      {
        name: 'Value', type: FieldType.number, labels, values: values.map(([, value]) => Number(value)),
        config: { displayNameFromDS: legend || name },
      },
    ],
  });
}

function table(result, refId, tables) {
  const labels = [...new Set(result.flatMap((series) => Object.keys(series.metric)))].sort();
  return createDataFrame({
    refId,
    meta: { preferredVisualisationType: 'table' },
    fields: [
      { name: 'Time', type: FieldType.time, values: result.map((series) => series.value[0] * 1000) },
      ...labels.map((label) => ({ name: label, type: FieldType.string, values: result.map((series) => series.metric[label] ?? '') })),
      { name: tables > 1 ? `Value #${refId}` : 'Value', type: FieldType.number, values: result.map((series) => Number(series.value[1])) },
    ],
  });
}

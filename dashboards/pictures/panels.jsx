// The panels that our dashboards use, drawn by @grafana/ui. Grafana's server carries thin plugins like these.
import { useMemo } from 'react';
import {
  PanelPlugin,
  cacheFieldDisplayNames,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  identityOverrideProcessor,
  renderMarkdown,
} from '@grafana/data';
import { sceneUtils } from '@grafana/scenes';
import { BigValue, TimeSeries, VizRepeater, useTheme2 } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

const isEmpty = (data) => !data.series.some((frame) => frame.length > 0);

function NoData({ data, fieldConfig, title }) {
  const failed = data.errors?.[0] ?? data.error;
  return (
    <div data-empty-panel={title} style={{ display: 'flex', alignItems: 'center', justifyContent: 'center', height: '100%' }}>
      {failed ? failed.message : fieldConfig?.defaults.noValue || 'No data'}
    </div>
  );
}

function Chart({ data, width, height, options, timeRange, timeZone, fieldConfig, title }) {
  if (isEmpty(data)) {
    return <NoData data={data} fieldConfig={fieldConfig} title={title} />;
  }
  return (
    <TimeSeries
      frames={data.series} timeRange={timeRange} timeZone={timeZone} width={width} height={height}
      legend={options.legend} options={options} structureRev={data.structureRev}
    />
  );
}

function Stat({ data, width, height, options, fieldConfig, replaceVariables, timeZone, renderCounter }) {
  const theme = useTheme2();
  const getValues = () =>
    getFieldDisplayValues({
      fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, data: data.series, timeZone,
    });
  return (
    <VizRepeater
      getValues={getValues} width={width} height={height} source={data} renderCounter={renderCounter}
      orientation={options.orientation} autoGrid itemSpacing={3} getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, width, height, count, alignmentFactors }) => (
        <BigValue
          value={value.display} width={width} height={height} count={count} theme={theme} text={options.text}
          colorMode={options.colorMode} graphMode={options.graphMode} justifyMode={options.justifyMode}
          textMode={options.textMode} wideLayout={options.wideLayout} alignmentFactors={alignmentFactors}
        />
      )}
    />
  );
}

function Rows({ data, width, height, options, fieldConfig, timeRange, title }) {
  useMemo(() => cacheFieldDisplayNames(data.series), [data.series]);
  if (isEmpty(data)) {
    return <NoData data={data} fieldConfig={fieldConfig} title={title} />;
  }
  return (
    <TableNG
      data={data.series[0]} width={width} height={height} cellHeight={options.cellHeight} timeRange={timeRange}
      initialSortBy={options.sortBy} structureRev={data.structureRev} fieldConfig={fieldConfig}
      disableSanitizeHtml={false} getActions={() => []}
    />
  );
}

function Words({ options, width, height }) {
  const html = useMemo(() => renderMarkdown(options.content), [options.content]);
  return <div className="markdown-html" style={{ width, height, overflow: 'auto' }} dangerouslySetInnerHTML={{ __html: html }} />;
}

// What of a field's settings a panel's plugin knows beside those of every panel, with the defaults of Grafana's own.
const CUSTOM = {
  timeseries: {
    drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none',
    showPoints: 'auto', pointSize: 5, spanNulls: false, insertNulls: false, stacking: { mode: 'none', group: 'A' },
    axisPlacement: 'auto', axisColorMode: 'text', axisBorderShow: false, axisCenteredZero: false,
    scaleDistribution: { type: 'linear' }, thresholdsStyle: { mode: 'off' }, axisSoftMax: undefined,
    hideFrom: { tooltip: false, viz: false, legend: false }, barAlignment: 0, lineStyle: undefined, fillBelowTo: undefined,
  },
  table: { width: undefined, align: 'auto', cellOptions: { type: 'auto' }, inspect: false, hidden: false, filterable: false },
};

export function registerPanels() {
  const panels = { timeseries: Chart, stat: Stat, table: Rows, text: Words };
  for (const [pluginId, component] of Object.entries(panels)) {
    const plugin = new PanelPlugin(component).useFieldConfig({
      useCustomConfig: (builder) => {
        for (const [path, defaultValue] of Object.entries(CUSTOM[pluginId] ?? {})) {
          builder.addCustomEditor({
            id: path, path, name: path, defaultValue, editor: () => null, override: () => null,
            process: identityOverrideProcessor, shouldApply: () => true,
          });
        }
      },
    });
    plugin.meta.skipDataQuery = pluginId === 'text';
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
  }
}

// One dashboard's JSON as a scene of Grafana's libraries, and a report on its panels once all is drawn.
import { createRoot } from 'react-dom/client';
import { MemoryRouter } from 'react-router-dom';
import { catchError, from, map, of } from 'rxjs';
import {
  EventBusSrv, LoadingState, ThemeContext, booleanOverrideProcessor, createTheme, dataLinksOverrideProcessor, displayNameOverrideProcessor,
  identityOverrideProcessor, numberOverrideProcessor, standardFieldConfigEditorRegistry, standardTransformers,
  standardTransformersRegistry, stringOverrideProcessor, thresholdsOverrideProcessor, unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import {
  config, setAppEvents, setDataSourceSrv, setEchoSrv, setPluginImportUtils, setRunRequest,
} from '@grafana/runtime';
import {
  DataSourceVariable, EmbeddedScene, QueryVariable, SceneDataTransformer, SceneGridItem, SceneGridLayout, SceneQueryRunner,
  SceneTimePicker, SceneTimeRange, SceneControlsSpacer, SceneVariableSet, VariableValueSelectors, VizPanel, sceneGraph,
} from '@grafana/scenes';
import { GlobalStyles, PortalContainer } from '@grafana/ui';

import { registerPanels } from './panels.jsx';
import { Prometheus } from './prometheus.js';

const asked = [];

function standIn(prometheus) {
  // What Grafana's server and its shell offer to the libraries.
  const settings = {
    uid: 'prometheus', name: 'Prometheus', type: 'prometheus', readOnly: true, jsonData: {},
    meta: { id: 'prometheus', name: 'Prometheus', info: { logos: {} } },
  };
  setDataSourceSrv({
    get: async () => prometheus,
    getInstanceSettings: () => settings,
    getList: () => [settings],
    reload: () => {},
  });
  setRunRequest((source, request) =>
    from(source.query(request)).pipe(
      map(({ data }) => ({ state: LoadingState.Done, series: data, request, timeRange: request.range })),
      catchError((error) => of({
        state: LoadingState.Error, series: [], errors: [error], error, request, timeRange: request.range,
      })),
    ),
  );
  setPluginImportUtils({ importPanelPlugin: async () => undefined, getPanelPluginFromCache: () => undefined });
  setAppEvents(new EventBusSrv());
  setEchoSrv({ addBackend: () => {}, addEvent: () => {}, flush: () => {} });
  const transformations = new Map(Object.values(standardTransformers).map((each) => [each.id, each])); // some have two names
  standardTransformersRegistry.setInit(() =>
    [...transformations].map(([id, transformation]) => ({ id, name: id, transformation, editor: () => null })),
  );
  const processors = {
    unit: unitOverrideProcessor, min: numberOverrideProcessor, max: numberOverrideProcessor, decimals: numberOverrideProcessor,
    displayName: displayNameOverrideProcessor, noValue: stringOverrideProcessor, thresholds: thresholdsOverrideProcessor,
    mappings: valueMappingsOverrideProcessor, links: dataLinksOverrideProcessor, color: identityOverrideProcessor,
    fieldMinMax: booleanOverrideProcessor, description: stringOverrideProcessor, filterable: booleanOverrideProcessor,
  };
  standardFieldConfigEditorRegistry.setInit(() =>
    Object.entries(processors).map(([id, process]) => ({
      id, path: id, name: id, process, editor: () => null, override: () => null, shouldApply: () => true,
      settings: id === 'links' ? {} : undefined,
    })),
  );
}

function variable(model) {
  const { name, label, hide, description } = model;
  if (model.type === 'datasource') {
    return new DataSourceVariable({ name, label, hide, pluginId: model.query, value: 'prometheus', text: 'Prometheus' });
  }
  return new QueryVariable({
    name, label, hide, description, query: model.query, datasource: model.datasource, sort: model.sort, refresh: model.refresh,
    isMulti: model.multi, includeAll: model.includeAll, allValue: model.allValue, value: model.current.value,
    text: model.current.text,
  });
}

function gridItem(panel) {
  const key = `panel-${panel.id}`;
  let data;
  if (panel.targets) {
    data = new SceneQueryRunner({
      datasource: panel.datasource, queries: panel.targets, minInterval: panel.interval, maxDataPointsFromWidth: true,
      key: `${key}-query`,
    });
    if (panel.transformations) {
      data = new SceneDataTransformer({ $data: data, transformations: panel.transformations });
    }
  }
  const { x, y, w, h } = panel.gridPos;
  const { title, description, options, fieldConfig } = panel;
  const body = new VizPanel({ key, pluginId: panel.type, title, description, options, fieldConfig, $data: data });
  return new SceneGridItem({ x, y, width: w, height: h, isDraggable: false, isResizable: false, body });
}

function reportOn(scene, dashboard) {
  const panels = dashboard.panels.filter((panel) => panel.targets).map((panel) => {
    const drawn = sceneGraph.findByKey(scene, `panel-${panel.id}`);
    const data = sceneGraph.getData(drawn).state.data;
    const error = (data?.errors?.[0] ?? data?.error)?.message;
    return {
      id: panel.id, title: panel.title, state: data?.state ?? 'NotStarted', error,
      rows: (data?.series ?? []).reduce((sum, frame) => sum + frame.length, 0),
    };
  });
  const empty = [...document.querySelectorAll('[data-empty-panel]')].map((panel) => panel.dataset.emptyPanel);
  const links = [...document.querySelectorAll('a[href*="/d/"]')].map((link) => link.getAttribute('href'));
  return { panels, empty, links, asked, settled: panels.every(({ state }) => state === 'Done' || state === 'Error') };
}

window.draw = async ({ dashboard, prometheus, scrapeSeconds, range, dark }) => {
  const theme = createTheme({ colors: { mode: dark ? 'dark' : 'light' } });
  config.theme2 = theme;
  config.publicDashboardAccessToken = '';
  await initPluginTranslations('grafana-scenes');
  standIn(new Prometheus(prometheus, scrapeSeconds, asked));
  registerPanels();
  const scene = new EmbeddedScene({
    $timeRange: new SceneTimeRange({ ...range, timeZone: 'utc' }),
    $variables: new SceneVariableSet({ variables: dashboard.templating.list.map(variable) }),
    controls: [new VariableValueSelectors({}), new SceneControlsSpacer(), new SceneTimePicker({})],
    body: new SceneGridLayout({
      isDraggable: false, isResizable: false, children: dashboard.panels.filter((panel) => panel.type !== 'row').map(gridItem),
    }),
  });
  window.report = () => reportOn(scene, dashboard);
  document.title = dashboard.title;
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <MemoryRouter>
        <h1 className="dashboard-title">{dashboard.title}</h1>
        <scene.Component model={scene} />
        <PortalContainer />
      </MemoryRouter>
    </ThemeContext.Provider>,
  );
};

// The libraries of report.html: only the listed parts of ECharts are bundled.
import { BarChart, CustomChart, LineChart, ScatterChart } from "echarts/charts";
import { AriaComponent, DataZoomComponent, GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import "sortable-tablesort/dist/sortable.js";

echarts.use([
  AriaComponent, BarChart, CanvasRenderer, CustomChart, DataZoomComponent, GridComponent, LegendComponent, LineChart,
  ScatterChart, TooltipComponent,
]);

export { echarts };

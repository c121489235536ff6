// Making a group: from an example, or from the fields that matter.
import { h } from "../core/dom.js";
import * as api from "../core/api.js";
import { t } from "../core/text.js";
import { confirm } from "./dialog.js";
import { field, say } from "./ui.js";
import { groupDryRun } from "./actions.js";

/** examples is groups to begin with. Their names are suggestions. */
const examples = {
	empty: { name: "", spec: {} },
	shell: { name: "echo", spec: { command: "echo I am %INSTANCE_NAME% on port %PORT%; exec cat", stopCommand: "", memoryMb: 16, minInstances: 1 } },
	java: { name: "lobby", spec: { jarFile: "server.jar", platform: "PAPER", memoryMb: 2048, minInstances: 1, fileModifications: ["server.properties"], readiness: { type: "port" } } },
	proxy: { name: "proxy", spec: { jarFile: "velocity.jar", platform: "VELOCITY", memoryMb: 512, minInstances: 1, portRangeStart: 25565, portRangeEnd: 25575, stopCommand: "end", fileModifications: ["velocity.toml"], readiness: { type: "port" } } },
	static: { name: "survival", spec: { jarFile: "server.jar", platform: "PAPER", static: true, memoryMb: 4096, minInstances: 1, maxInstances: 1, readiness: { type: "port" } } },
};

/** newGroup asks for a new group and shows where its instances would be placed. */
export async function newGroup() {
	const state = { example: "shell", ...fill("shell") };
	const templates = await api.get("/api/v1/templates", { pageSize: 200 }).then((p) => p.data.map((x) => x.name), () => []);
	const spec = () => {
		const s = { ...examples[state.example].spec, minInstances: Number(state.min), memoryMb: Number(state.memory), command: state.command || undefined, jarFile: state.command ? undefined : state.jar || undefined, templates: state.template ? [state.template] : undefined };
		return JSON.parse(JSON.stringify(s));
	};
	const done = await confirm({
		title: t("groups.new"),
		label: t("action.create"),
		fields: (again) => {
			const text = (key, label, o) => field({ label, name: key, value: state[key], ...o, oninput: (v) => { state[key] = v; again(); } });
			return h(
				"div",
				{ class: "form" },
				h("div", { class: "full" }, field({ label: t("newgroup.example"), name: "example", value: state.example, options: Object.keys(examples).map((e) => [e, t("newgroup.example." + e)]), oninput: (v) => { Object.assign(state, { example: v, ...fill(v) }); again(); } })),
				text("name", t("groups.name"), { required: true, autofocus: true, hint: t("newgroup.name.hint"), pattern: "[a-z0-9_][a-z0-9_\\-]{0,31}" }),
				text("template", t("newgroup.template"), { required: !state.command, hint: state.command ? undefined : t("newgroup.template.jar"), options: [["", t("newgroup.template.none")], ...templates.map((n) => [n, n])] }),
				h("div", { class: "full" }, text("command", t("newgroup.command"), { hint: t("newgroup.command.hint") })),
				state.command ? null : text("jar", t("newgroup.jar"), {}),
				text("min", t("newgroup.min"), { type: "number", min: "0", required: true, hint: t("newgroup.min.hint") }),
				text("memory", t("newgroup.memory"), { type: "number", min: "1", required: true }),
			);
		},
		preview: () => (state.name ? api.post("/api/v1/groups", { name: state.name, ...spec() }, { dryRun: true }) : Promise.resolve(null)),
		show: groupDryRun,
		act: async () => {
			await api.post("/api/v1/groups", { name: state.name, ...spec() });
		},
	});
	if (!done) return;
	say(t("newgroup.done", { name: state.name }));
	location.hash = "#/groups/" + encodeURIComponent(state.name);
}

function fill(example) {
	const { name, spec } = examples[example];
	return { name, command: spec.command ?? "", jar: spec.jarFile ?? "server.jar", min: String(spec.minInstances ?? 1), memory: String(spec.memoryMb ?? 1024), template: "" };
}

// Shows /openapi.json. Everything that comes from the document is set as text, never as markup.
"use strict";

const methods = ["get", "post", "put", "patch", "delete"];
let doc = {};

function make(tag, text, ...children) {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
}

function classed(node, name) {
  node.className = name;
  return node;
}

const quiet = (text) => classed(make("span", text), "quiet");

// resolve follows a reference within the document.
function resolve(value) {
  for (let n = 0; value && value.$ref && n < 8; n++) {
    value = value.$ref.slice(2).split("/").reduce((at, key) => at && at[key.replaceAll("~1", "/").replaceAll("~0", "~")], doc);
  }
  return value || {};
}

// typeOf says in a word or two what a schema takes.
function typeOf(schema) {
  const name = schema.$ref ? schema.$ref.split("/").pop() : "";
  const s = resolve(schema);
  if (name) return name;
  if (s.oneOf || s.anyOf) return (s.oneOf || s.anyOf).map(typeOf).join(" or ");
  const type = [].concat(s.type || "anything").join(" or ");
  if (s.items) return "list of " + typeOf(s.items);
  if (s.additionalProperties && s.additionalProperties !== true) return "map of " + typeOf(s.additionalProperties);
  return s.enum ? type + ": " + s.enum.join(", ") : type;
}

// inner is the schema whose fields are shown below a value: that of a list's items or a map's values.
function inner(schema) {
  let s = resolve(schema);
  for (let n = 0; n < 8 && !s.properties; n++) {
    const next = s.items || (typeof s.additionalProperties === "object" && s.additionalProperties) || (s.oneOf || s.anyOf || []).find((o) => o.type !== "null");
    if (!next) break;
    s = resolve(next);
  }
  return s;
}

// fields are a schema's properties; what is inside one is made when it is opened.
function fields(schema) {
  const s = inner(schema);
  const required = s.required || [];
  return Object.entries(s.properties || {}).map(([name, field]) => {
    const f = resolve(field);
    const label = [make("code", name), quiet(" " + typeOf(field) + (required.includes(name) ? "" : ", may be absent"))];
    const about = field.description || f.description; // beside a reference, what is said of this field goes first
    if (about) label.push(quiet(" - " + about));
    if (!inner(field).properties) return classed(make("div", "", ...label), "field");
    return folded(label, () => fields(field));
  });
}

// folded is a part that is made when it is opened for the first time.
function folded(label, content) {
  const node = make("details", "", make("summary", "", ...label));
  node.addEventListener("toggle", () => node.append(...content()), { once: true });
  return node;
}

function bodyOf(title, content) {
  return Object.entries(content || {}).flatMap(([media, c]) => [
    make("p", title + " ", quiet(media + (c.schema ? ", " + typeOf(c.schema) : ""))), ...(c.schema ? fields(c.schema) : []),
  ]);
}

function operation(path, method, item, op) {
  const label = [classed(make("span", method.toUpperCase()), "method"), make("span", path), quiet("  " + (op.summary || "") + (op["x-later"] ? " (not there yet)" : ""))];
  const node = folded(label, () => {
    const parts = [];
    if (op.description) parts.push(make("p", op.description));
    if (op["x-later"]) parts.push(make("p", "", quiet("It is not there yet: always refused, and nothing is done.")));
    if (op.security && op.security.length === 0) parts.push(make("p", "", quiet("Needs no token.")));
    if (op["x-permission"] && op["x-permission"].length) parts.push(make("p", "", quiet("Needs " + op["x-permission"].join(" and ") + ".")));
    for (const p of [...(item.parameters || []), ...(op.parameters || [])].map(resolve)) {
      parts.push(classed(make("div", "", make("code", p.name), quiet(" in " + p.in + ", " + typeOf(p.schema || {}) + (p.description ? " - " + p.description : ""))), "field"));
    }
    parts.push(...bodyOf("Body", resolve(op.requestBody).content));
    for (const [status, r] of Object.entries(op.responses || {})) {
      const response = resolve(r);
      parts.push(...bodyOf(status + " " + (response.description || ""), response.content || { "no body": {} }));
    }
    return parts;
  });
  node.id = op.operationId;
  node.dataset.text = [method, path, op.summary, op.description, ...(op["x-permission"] || [])].join(" ").toLowerCase();
  return node;
}

function show() {
  const byTag = new Map((doc.tags || []).map((t) => [t.name, make("section", "", make("h2", t.name), make("p", t.description))]));
  for (const path of Object.keys(doc.paths).sort()) {
    for (const method of methods) {
      const op = doc.paths[path][method];
      if (op) byTag.get(op.tags[0]).append(operation(path, method, doc.paths[path], op));
    }
  }
  for (const group of doc["x-tagGroups"]) {
    const row = make("div", "", make("strong", group.name));
    for (const name of group.tags) {
      const section = byTag.get(name);
      section.id = "area-" + name.toLowerCase().replaceAll(" ", "-");
      const link = make("a", name);
      link.href = "#" + section.id;
      row.append(link);
      document.getElementById("operations").append(section);
    }
    document.getElementById("areas").append(row);
  }
  document.getElementById("about").textContent = doc.info.description;
  document.getElementById("filter").addEventListener("input", (e) => {
    const wanted = e.target.value.toLowerCase();
    for (const section of byTag.values()) {
      let any = false;
      for (const node of section.querySelectorAll(":scope > details")) {
        node.hidden = !node.dataset.text.includes(wanted);
        any = any || !node.hidden;
      }
      section.hidden = !any;
    }
  });
  const linked = document.getElementById(location.hash.slice(1));
  if (linked) {
    linked.open = true;
    linked.scrollIntoView();
  }
}

fetch("/openapi.json")
  .then((r) => r.json())
  .then((d) => { doc = d; show(); })
  .catch((e) => { document.getElementById("about").textContent = "The description could not be loaded: " + e; });

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { german } from "../web/texts/de.js";
import { english } from "../web/texts/en.js";

const web = new URL("../web/", import.meta.url);
const sources = readdirSync(web, { recursive: true }).filter((f) => f.endsWith(".js") && !f.startsWith("texts/")).map((f) => readFileSync(new URL(f, web), "utf8")).join("\n");

test("every text that a page names exists", () => {
	const names = [...sources.matchAll(/\bt\("([^"]+)"\s*[,)]/g)].map((m) => m[1]);
	assert.ok(names.length > 200);
	assert.deepEqual(names.filter((n) => !(n in english)), []);
});

test("every text is named, whole or by its beginning", () => {
	const wholes = new Set([...sources.matchAll(/"([a-z][\w.,-]*)"/gi)].map((m) => m[1]));
	const beginnings = [...sources.matchAll(/"([a-z]\w*\.(?:[\w.]*\.)?)"\s*\+/gi)].map((m) => m[1]);
	const unused = Object.keys(english).filter((k) => !wholes.has(k) && !wholes.has(k.replace(/\.one$/, "")) && !beginnings.some((b) => k.startsWith(b)));
	assert.deepEqual(unused, []);
});

test("German translates the same texts with the same placeholders", () => {
	assert.deepEqual(Object.keys(german).sort(), Object.keys(english).sort());
	const holes = (s) => [...s.matchAll(/\{\w+\}/g)].map((m) => m[0]).sort().join();
	for (const k of Object.keys(english)) assert.equal(holes(german[k]), holes(english[k]), k);
});

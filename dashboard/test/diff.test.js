import assert from "node:assert/strict";
import { test } from "node:test";
import { lines } from "../web/parts/diff.js";

const marks = { same: " ", added: "+", removed: "-" };
const diff = (a, b) => lines(a, b).map((l) => marks[l.kind] + l.text).join("|");

test("lines that differ", () => {
	assert.equal(diff("a\nb\nc", "a\nx\nc"), " a|-b|+x| c");
	assert.equal(diff("a\nb", "a\nb"), " a| b");
	assert.equal(diff("", "a"), "-|+a");
	assert.equal(diff("a\nb\nc\nd", "b\nd\ne"), "-a| b|-c| d|+e");
});

test("a diff leads from one text to the other", () => {
	for (let n = 0; n < 200; n++) {
		const text = () => Array.from({ length: n % 13 }, (_, i) => "abc"[(n * 7 + i * i + (n % 5) * i) % 3]).join("\n");
		const a = text(), b = [...text()].reverse().join("");
		const all = lines(a, b);
		assert.equal(all.filter((l) => l.kind !== "added").map((l) => l.text).join("\n"), a);
		assert.equal(all.filter((l) => l.kind !== "removed").map((l) => l.text).join("\n"), b);
	}
});

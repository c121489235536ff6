import assert from "node:assert/strict";
import { test } from "node:test";
import { isAfter } from "../web/core/stream.js";

test("ids of events are in the order of their revisions, and of their numbers in one", () => {
	const ordered = ["9", "10-1", "10-2", "10-10", "10", "11-1"];
	for (const [i, a] of ordered.entries()) for (const [j, b] of ordered.entries()) assert.equal(isAfter(a, b), i > j, a + " after " + b);
	assert.equal(isAfter("1", ""), true);
});

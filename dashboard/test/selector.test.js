import assert from "node:assert/strict";
import { test } from "node:test";
import { matches } from "../web/core/selector.js";

test("a selector matches labels as the gateway does", () => {
	const labels = { game: "bedwars", tier: "1", empty: "" };
	for (const yes of ["", "game", "game=bedwars", "game==bedwars", "game!=skywars", "absent!=x", "!test", "empty=", "game in (skywars, bedwars)", "game notin (skywars)", "absent notin (a)", "game=bedwars, !test, tier in (1)"]) assert.ok(matches(yes, labels), yes);
	for (const no of ["test", "game=skywars", "game!=bedwars", "!game", "empty!=", "game in (skywars)", "absent in (a)", "game notin (bedwars, x)", "game=bedwars, test", "toString", "game in", "=x", "game=bedwars tier"]) assert.ok(!matches(no, labels), no);
});

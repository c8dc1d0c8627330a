/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: a script of 6-byte steps {peer and id, message length, offset, length, unit, time}
 * against small bounds. Every frame must be returned once, bounds and equations must hold, and a
 * complete message must be covered.
 */
#include "fuzz.h"

#include "kvr_message.h"
#include "kvr_reasm.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static int64_t outside; /* frames put in and not returned */

static void on_drop(void *arg, void *frame)
{
	outside--;
	free(frame);
}

static void take_message(const struct kvr_reasm_msg *m)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < m->n_frags; i++) {
		REQUIRE(m->frag[i].off == at);
		at += m->frag[i].len;
		free(m->frag[i].frame);
	}
	REQUIRE(at == m->len);
	outside -= m->n_frags;
}

static void run_script_step(struct kvr_reasm *r, const uint8_t *d, uint64_t *now)
{
	const struct kvr_peer peer = {{d[0] >> 6}};
	const struct kvr_wire_ids ids = {.source = 1, .id = d[0] & 7, .msg_seq = d[0] >> 3 & 1};
	const uint32_t unit = 512 + 8u * (d[4] & 3);
	const uint32_t msg_len = unit * (1 + d[1] % 80) + 8u * (d[4] >> 4);
	const uint32_t off = d[2] % 96 * unit + ((d[4] & 8) != 0 ? 8 : 0);
	const uint32_t rest = off < msg_len ? msg_len - off : 0;
	const uint32_t len = (d[3] & 1) != 0 ? 8u * (d[3] >> 1) : rest < unit ? rest : unit;
	uint8_t frame[48 + 2048];
	struct kvr_reasm_lack lack;
	struct kvr_reasm_msg m;
	void *ref;
	int res;

	*now += d[5];
	kvr_reasm_expire(r, *now, 2);
	if (kvr_reasm_lacking(r, *now, &lack)) {
		REQUIRE(kvr_body_check(KVR_MISSING, &lack.missing, lack.len, NULL) == 0);
		REQUIRE(lack.frame != NULL);
	}
	kvr_hdr_put(frame, KVR_ROUTE, &ids, msg_len, off, (uint16_t)len);
	if (len > 2048 || kvr_frame_check(frame, 48 + len, KVR_ROLE_BIT_ROUTER) != 0)
		return;
	ref = malloc(1);
	outside++;
	res = kvr_reasm_add(r, &peer, (struct kvr_wire_hdr *)frame, frame + 48, ref, *now, &m);
	if (res == KVR_REASM_COMPLETE) {
		take_message(&m);
	} else if (res != KVR_REASM_HELD) {
		outside--;
		free(ref);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct kvr_reasm_conf conf = {.max_messages = 5,
					    .max_frames = 48,
					    .max_bytes = 24000,
					    .peer_max_messages = 3,
					    .peer_max_frames = 30,
					    .timeout = 200,
					    .quiet = 20,
					    .remember = 2,
					    .seed = 1,
					    .drop = on_drop};
	struct kvr_reasm *r = kvr_reasm_create(&conf);
	const struct kvr_reasm_stats *s;
	uint64_t now = 0;

	if (r == NULL)
		return 0;
	s = kvr_reasm_stats(r);
	outside = 0;
	for (size_t at = 0; at + 6 <= size; at += 6) {
		run_script_step(r, data + at, &now);
		REQUIRE((uint64_t)outside == s->frames && s->frames <= 48);
		REQUIRE(s->bytes <= 24000 && s->messages <= 5);
		REQUIRE(s->accepted == s->delivered_frames + s->dropped_frames + s->frames);
		REQUIRE(s->started == s->completed + s->expired + s->evicted + s->messages);
	}
	kvr_reasm_destroy(r);
	REQUIRE(outside == 0);
	return 0;
}

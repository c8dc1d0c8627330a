/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SAMPLES_H
#define KVR_SAMPLES_H

/**
 * @file
 * One valid message of every kind (some kinds in several shapes), made by the encoders with fixed
 * contents. The protocol tables, the mutation test, the fuzz corpus, the dissector's capture and
 * the examples of PROTOCOL.md all start from these.
 */

#include "kvr_put.h"

#define SAMPLES_MAX	  64
#define SAMPLE_FRAMES_MAX 8
#define SAMPLE_FRAME	  1432u

struct sample {
	const char *name;
	uint8_t kind;
	uint8_t receiver; /* KVR_ROLE_BIT_* */
	uint32_t n_frames;
	uint32_t len[SAMPLE_FRAMES_MAX];
	uint8_t frame[SAMPLE_FRAMES_MAX][SAMPLE_FRAME];
};

/** Fill @p out (SAMPLES_MAX entries); returns how many. Aborts when an encoder refuses. */
uint32_t samples_make(struct sample *out);

/** The sample of that name; aborts when there is none. */
const struct sample *samples_find(const struct sample *s, uint32_t n, const char *name);

#endif

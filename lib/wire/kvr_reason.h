/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_REASON_H
#define KVR_REASON_H

/**
 * @file
 * Reasons in words: the texts of REJECTED, and of last items with ERROR or CANCELLED. Texts are
 * written piece by piece into the caller's memory, always end with a zero byte, and are truncated
 * to its size. Any thread, packet lcores too: nothing is allocated, locked or formatted by the C
 * library. Budget: some hundred instructions per text.
 */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of the longest text of the protocol, without the zero byte. */
#define KVR_REASON_MAX 255u

/** A text in progress, in the caller's memory. */
struct kvr_reason {
	char *p;
	uint32_t n;   /* bytes written */
	uint32_t cap; /* of the memory, 1 or more */
};

/** An empty text in @p cap bytes at @p p, 1 or more. */
struct kvr_reason kvr_reason_init(char *p, uint32_t cap);

/** Add @p words. */
void kvr_reason_say(struct kvr_reason *t, const char *words);

/** Add @p words and @p n in decimal digits. */
void kvr_reason_count(struct kvr_reason *t, const char *words, uint64_t n);

/** Add the first line of @p len bytes of foreign origin, with '?' for bytes that are not printable
 * ASCII. */
void kvr_reason_quote(struct kvr_reason *t, const void *from, uint32_t len);

#ifdef __cplusplus
}
#endif

#endif

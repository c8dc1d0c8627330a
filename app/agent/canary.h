/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_CANARY_H
#define AGENT_CANARY_H

/**
 * @file
 * Check that prompts and events name blocks alike. When the worker is registered, and every
 * --canary-s, a unique prompt is tokenized by the engine's /tokenize, hashed as gateways do, and
 * completed. Its blocks must appear in the engine's events. Otherwise requests are routed by hashes
 * that no cache has, because tokenizer, block size or salt differ. Misses are counted, logged, and
 * reported to the router, whose doctor lists the worker after two consecutive misses until one
 * canary succeeds, late or not.
 *
 *	idle -> models -> tokenize -> complete -> wait (for the event) -> idle
 *
 * One thread; one transfer at app time.
 */

#include "app.h"

int app_canary_start(struct app *app);
void app_canary_stop(struct app *app);

/** The worker was registered: results of a previous incarnation are void. */
void app_canary_begin(struct app *app);

/** Start a canary that is due, or end one whose events did not arrive. */
void app_canary_turn(struct app *app);
uint64_t app_canary_due_us(const struct app *app);

/** The transfer has ended. */
void app_canary_ended(struct app *app, CURLcode result);

/** A rank stored these blocks. */
void app_canary_stored(struct app *app, const uint64_t sh[], uint32_t n);

#endif

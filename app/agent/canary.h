/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_CANARY_H
#define AGENT_CANARY_H

/**
 * @file
 * Do prompts and events name blocks alike? When the worker is registered, and every --canary-s, a
 * prompt that nobody else sends goes through the engine's /tokenize, is hashed as gateways do it,
 * and is then completed. The blocks must come in the engine's events. When they do not, requests
 * are routed by names that no cache has: another tokenizer, block size or salt. Counted, logged,
 * and told to the router, whose doctor names the worker when two in a row were missed, until one
 * comes back, be it late.
 *
 *	idle -> models -> tokenize -> complete -> wait (for the event) -> idle
 *
 * One thread; one transfer at a time.
 */

#include "app.h"

int app_canary_start(struct app *a);
void app_canary_stop(struct app *a);

/** The worker is registered anew: what was found before is of another life. */
void app_canary_begin(struct app *a);

/** Begin what is due, or give up what has not come. */
void app_canary_turn(struct app *a);
uint64_t app_canary_due_us(const struct app *a);

/** The transfer has ended. */
void app_canary_ended(struct app *a, CURLcode result);

/** A rank has stored these blocks. */
void app_canary_stored(struct app *a, const uint64_t sh[], uint32_t n);

#endif

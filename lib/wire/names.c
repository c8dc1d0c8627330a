/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of kinds and codes, made from the lists of protocol.h. */
#include "kvr_frame.h"

/* ---- kinds ------------------------------------------------------------------------------- */

#define C    KVR_ROLE_BIT_CLIENT
#define A    KVR_ROLE_BIT_AGENT
#define R    KVR_ROLE_BIT_ROUTER
#define ONE  false
#define MANY true
#define YES  true
#define NO   false
#define REST UINT32_MAX /* what one frame can carry */

struct kvr_wire_none {
};

#define BODY(fixed, n)                                                                             \
	((uint32_t)(n) == REST ? KVR_WIRE_MAX_FRAME - KVR_WIRE_MIN_FRAME                           \
			       : (uint32_t)(sizeof(struct kvr_wire_##fixed) + (n)))
#define KIND(name, number, from, to, fixed, least, most, frames, rejected)                         \
	[number] = {#name, BODY(fixed, least), BODY(fixed, most), from, to, frames, rejected},

static const struct kvr_kind_info kinds[KVR_WIRE_KIND_MAX] = {KVR_KINDS(KIND)};

const struct kvr_kind_info *kvr_kind_info(uint8_t kind)
{
	return kind < KVR_WIRE_KIND_MAX && kinds[kind].name != NULL ? &kinds[kind] : NULL;
}

const char *kvr_wire_kind_name(uint8_t kind)
{
	const struct kvr_kind_info *k = kvr_kind_info(kind);

	return k == NULL ? "?" : k->name;
}

/* ---- codes ------------------------------------------------------------------------------- */

#define CODE(name, number, text, retryable, description) [number] = {text, description, retryable},

static const struct {
	const char *name, *text;
	bool retryable;
} codes[KVR_E_MAX] = {[KVR_OK] = {"Ok", "no error", false}, KVR_CODES(CODE)};

const char *kvr_code_name(unsigned int code)
{
	return code < KVR_E_MAX && codes[code].name != NULL ? codes[code].name : "?";
}

const char *kvr_code_text(unsigned int code)
{
	return code < KVR_E_MAX && codes[code].text != NULL ? codes[code].text : "unknown reason";
}

bool kvr_code_retryable(unsigned int code)
{
	return code < KVR_E_MAX && codes[code].retryable;
}

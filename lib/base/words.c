/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_words.h"

#include <stddef.h>
#include <string.h>

#define TEXT(name, text, number)	   [number] = text,
#define WHY(name, text, retryable, number) [number] = {text, retryable},

static const char *const roles[] = {KVR_WORDS_ROLES(TEXT)};
static const char *const legs[] = {KVR_WORDS_LEGS(TEXT)};
static const char *const ways[] = {KVR_WORDS_WAYS(TEXT)};
static const char *const tiers[] = {KVR_WORDS_TIERS(TEXT)};
static const struct {
	const char *text;
	bool retryable;
} whys[] = {KVR_WORDS_WHYS(WHY)};

#define N(a) (sizeof(a) / sizeof((a)[0]))

static const char *text_of(const char *const list[], size_t n, unsigned int i)
{
	return i < n && list[i] != NULL ? list[i] : "?";
}

static int find(const char *const list[], size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i], text) == 0)
			return (int)i;
	return -1;
}

const char *kvr_words_role(unsigned int role)
{
	return text_of(roles, N(roles), role);
}

const char *kvr_words_leg(unsigned int leg)
{
	return text_of(legs, N(legs), leg);
}

const char *kvr_words_way(unsigned int way)
{
	return text_of(ways, N(ways), way);
}

const char *kvr_words_tier(unsigned int tier)
{
	return text_of(tiers, N(tiers), tier);
}

const char *kvr_words_why(unsigned int why)
{
	return why < N(whys) && whys[why].text != NULL ? whys[why].text : "?";
}

bool kvr_words_retryable(unsigned int why)
{
	return why < N(whys) && whys[why].retryable;
}

int kvr_words_role_find(const char *text)
{
	return find(roles, N(roles), text);
}

int kvr_words_tier_find(const char *text)
{
	return find(tiers, N(tiers), text);
}

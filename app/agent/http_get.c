/* SPDX-License-Identifier: BSD-3-Clause */
/* GET requests to the engine through libcurl. */
#include "app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t on_page(char *data, size_t size, size_t count, void *user)
{
	const size_t n = size * count;
	struct app_page *page = user;
	char *larger = page->len + n <= APP_PAGE_MOST ? realloc(page->p, page->len + n) : NULL;

	if (larger == NULL)
		return 0;
	page->p = larger;
	memcpy(page->p + page->len, data, n);
	page->len += n;
	return n;
}

void app_http_get(const struct app *app, CURL *easy, const char *path, struct app_page *page,
		  enum app_transfer *whose, long most_ms)
{
	char url[512];

	page->len = 0;
	snprintf(url, sizeof(url), "%s%s", app->o.engine, path);
	curl_easy_reset(easy);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_page);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, page);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, (char *)whose);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)app->o.connect_ms);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, most_ms);
}

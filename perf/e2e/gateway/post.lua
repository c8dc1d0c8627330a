-- SPDX-License-Identifier: BSD-3-Clause
-- Requests of wrk: completions of KVR_BYTES bytes, all with the same prompt of token ids.
local bytes = tonumber(os.getenv("KVR_BYTES"))
local head = '{"model":"default","max_tokens":16,"prompt":[1'
local ids = {}
local length = #head + 2
while length + 6 <= bytes do
  ids[#ids + 1] = "," .. tostring(10000 + #ids % 80000)
  length = length + 6
end
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
wrk.body = head .. table.concat(ids) .. "]}"

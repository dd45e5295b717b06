-- Reads what WANTED names out of whole JSON answers into the dynamic metadata of NAMESPACE, for the access log.
--
-- A name is looked for as it is written, where it stands last, and no more is read than its value and what follows: that
-- must close one level and end, else it is not the document's own. In a string no name can be taken for one, since quotes
-- are escaped there. Chunks are passed on as they come; an answer of more than MOST_BYTES is not read.

local QUOTE, BACKSLASH, BRACE, BRACKET = ('"\\{['):byte(1, 4)

-- The place of the quote that ends the string which begins at `at`; nil without one.
local function string_end(text, at)
  repeat
    at = text:find('"', at + 1, true)
    local slashes = 0
    while at and text:byte(at - slashes - 1) == BACKSLASH do slashes = slashes + 1 end
  until slashes % 2 == 0
  return at
end

-- The place of the bracket that closes the level which is open at `at`; nil without one.
local function closing(text, at)
  local depth = 1
  while at do
    at = text:find('["%[%]{}]', at)
    local found = at and text:byte(at)
    if found == QUOTE then
      at = string_end(text, at)
    elseif found == BRACE or found == BRACKET then
      depth = depth + 1
    elseif found then
      depth = depth - 1
      if depth == 0 then return at end
    end
    at = at and at + 1
  end
end

local function value_end(text, at)
  local first = text:byte(at)
  if first == QUOTE then return string_end(text, at) end
  if first == BRACE or first == BRACKET then return closing(text, at + 1) end
  local past = text:match("^[%w.+-]+()", at)
  return past and past - 1
end

-- Notes the value from `at` to `stop` if it is of the kind that `key` is to be: a number, or a text without escapes.
local function note(text, at, stop, key, found)
  if not IS_TEXT[key] then
    found[key] = tonumber(text:sub(at, stop))
  elseif text:byte(at) == QUOTE and stop - at <= MOST_TEXT and not text:find("\\", at, true) then
    found[key] = text:sub(at + 1, stop - 1)
  end
end

-- Notes those members of the object which begins at `at` that `wanted` names; where it ends, nil if it is none.
local function read_object(text, at, wanted, found)
  at = text:find('["}]', at + 1)
  while at and text:byte(at) == QUOTE do
    local name, value = text:match('^"([^"]*)"%s*:%s*()', at)
    local stop = value and value_end(text, value)
    if not stop then return nil end
    if wanted[name] then note(text, value, stop, wanted[name], found) end
    at = text:find('["}]', stop + 1)
  end
  return at
end

-- Where the value of the last member begins, of whatever object, that has the name `quoted` and is an object, or with
-- `is_object` false a text; nil without one.
local function last_named(text, quoted, is_object)
  local found
  local at = text:find(quoted, 1, true)
  while at do
    local value = text:match(is_object and "^%s*:%s*(){" or '^%s*:%s*()"', at + #quoted)
    if value and text:byte(at - 1) ~= BACKSLASH then found = value end
    at = text:find(quoted, at + #quoted, true)
  end
  return found
end

-- Tells what is wanted of the document's member of the name `quoted`. The document ends at `last`.
local function read_member(text, last, quoted, wanted, metadata)
  local is_object = type(wanted) == "table"
  local at = last_named(text, quoted, is_object)
  if not at then return end
  local found, stop = {}, nil
  if is_object then
    stop = read_object(text, at, wanted, found)
  else
    stop = string_end(text, at)
    if stop then note(text, at, stop, wanted, found) end
  end
  if stop and closing(text, stop + 1) == last then
    for key, told in pairs(found) do metadata:set(NAMESPACE, key, told) end
  end
end

local function is_json(kind)
  return kind == "application/json" or kind and kind:lower():find("^application/json%s*%f[;%z]") ~= nil
end

function envoy_on_response(handle)
  if not is_json(handle:headers():get("content-type")) then return end
  local chunks, size = {}, 0
  for chunk in handle:bodyChunks() do
    size = size + chunk:length()
    if size <= MOST_BYTES then chunks[#chunks + 1] = chunk:getBytes(0, chunk:length()) end
  end
  if size > MOST_BYTES then return end
  local text = table.concat(chunks)
  local last = #text
  while last > 0 and text:find("^%s", last) do last = last - 1 end
  local metadata = handle:streamInfo():dynamicMetadata()
  for quoted, wanted in pairs(WANTED) do read_member(text, last, quoted, wanted, metadata) end
end

-- Plugin for Flux's job shell, in /etc/flux/shell/lua.d. Adds the output of task-begin to the environment of tasks.
local hooks = "/etc/barograph/hooks"
local passed = {
    "LD_PRELOAD", "ASAN_OPTIONS", "BAROGRAPH_DISABLE", "BAROGRAPH_RANKS", "BAROGRAPH_RING_DIR", "BAROGRAPH_FEATURES", "PYTHONPATH",
    "FLUX_JOB_NNODES",
}
local variables -- read once: they are the same for all tasks of a job

local function quoted(text)
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

local function first_line(command)
    local pipe = io.popen(command)
    local line = pipe and pipe:read("l") or ""
    if pipe then pipe:close() end
    return line
end

-- The prefix of an id is a non-ASCII letter in some locales, and the prolog's locale may differ.
local function name()
    return "flux-" .. task.getenv("FLUX_JOB_ID"):gsub("^ƒ", "f") .. "@" .. first_line("/bin/uname -n")
end

local function ask()
    local words = { "/usr/bin/env" }
    for _, variable in ipairs(passed) do
        local value = task.getenv(variable)
        if value then words[#words + 1] = variable .. "=" .. quoted(value) end
    end
    local call = { "/bin/sh", hooks .. "/bounded", "task-begin", quoted(name()), first_line("/usr/bin/id -u"), "0", "0" }
    for line in io.popen(table.concat(words, " ") .. " " .. table.concat(call, " ") .. " 2> /dev/null"):lines() do
        local variable, value = line:match("^([A-Z_]+)=(.*)$")
        if variable then variables[variable] = value end
    end
end

plugin.register {
    name = "barograph",
    handlers = {
        {
            -- Not shell.init: at that time older shells have the id of the enclosing job.
            topic = "task.init",
            fn = function()
                pcall(function()
                    if not variables then
                        variables = {}
                        ask()
                    end
                    for variable, value in pairs(variables) do task.setenv(variable, value) end
                end)
            end,
        },
    },
}

// The site: README.md, README.zh-CN.md and the pages under docs/, as they are. `make docs` builds it.
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join, posix, resolve } from 'node:path'
import { defineConfig, type DefaultTheme, type MarkdownOptions } from 'vitepress'

const root = resolve(import.meta.dirname, '../..')
const repository = 'https://' + /^module (\S+)/.exec(read('go.mod'))![1]
const sections = [
  { folder: 'start', title: 'Start', zh: '入门' },
  { folder: 'howto', title: 'How to', zh: '操作指南' },
  { folder: 'reference', title: 'Reference', zh: '参考' },
  { folder: 'why', title: 'Why believe it', zh: '为什么可信' },
].filter(({ folder }) => existsSync(join(root, 'docs', folder)))

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8')
}

// Source files and the addresses of their pages.
const rewrites: Record<string, string> = { 'README.md': 'index.md', 'README.zh-CN.md': 'zh/index.md' }
for (const { folder } of sections) {
  for (const page of pages(folder)) rewrites[`docs/${folder}/${page}`] = `${folder}/${page}`
}

function pages(folder: string): string[] {
  return readdirSync(join(root, 'docs', folder)).filter((name) => name.endsWith('.md'))
}

// The sidebar has the pages of each folder; a page's first heading is its title.
function sidebar(locale: 'title' | 'zh'): DefaultTheme.SidebarItem[] {
  return sections.map((section) => ({
    text: section[locale],
    items: pages(section.folder).map((page) => ({
      text: /^# (.+)$/m.exec(read(`docs/${section.folder}/${page}`))![1].replace(/`/g, ''),
      link: `/${section.folder}/${page.replace(/\.md$/, '')}`,
    })),
  }))
}

// A link to a page leads to the page, one to any other file or folder to the repository.
function address(source: string, href: string): string {
  if (/^([a-z]+:|\/|#|$)/.test(href)) return href
  const [path, hash = ''] = href.split(/(?=#)/)
  const target = posix.join(posix.dirname(source), path)
  if (rewrites[target]) return '/' + rewrites[target].replace(/(^|\/)index\.md$/, '$1').replace(/\.md$/, '') + hash
  if (!existsSync(join(root, target))) throw new Error(`${source}: ${href} leads nowhere`)
  return `${repository}/${statSync(join(root, target)).isDirectory() ? 'tree' : 'blob'}/HEAD/${target}${hash}`
}

const markdown: MarkdownOptions = {
  // GitHub's anchors, so that a link to a heading works in both places.
  anchor: { slugify: (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-') },
  config(md) {
    const source = (env: any) => posix.relative(root, env.realPath ?? env.path)
    md.core.ruler.push('addresses', ({ tokens, env }) => {
      for (const token of tokens) {
        for (const t of [token, ...(token.children ?? [])]) {
          if (t.type === 'link_open') t.attrSet('href', address(source(env), t.attrGet('href')!))
          if (t.type.startsWith('html_')) {
            t.content = t.content.replace(/(<a\s[^>]*href=")([^"]*)/g, (_, tag, href) => tag + address(source(env), href))
          }
        }
      }
    })
    const fence = md.renderer.rules.fence!
    md.renderer.rules.fence = (tokens, i, ...rest) =>
      tokens[i].info.trim() === 'mermaid'
        ? `<Diagram text="${encodeURIComponent(tokens[i].content)}" />`
        : fence(tokens, i, ...rest)
  },
}

// DOCS_VERSION is what is built, DOCS_BASE the path that it is served at, DOCS_SITE the address
// below which each version has its folder; without it a version leads to its pages in the repository.
const { DOCS_VERSION: version = 'main', DOCS_BASE: base = '/', DOCS_SITE: site } = process.env
function versions(all: string): DefaultTheme.NavItem {
  const tags = execFileSync('git', ['tag', '--list', 'v*', '--sort=-version:refname'], { cwd: root, encoding: 'utf8' })
  const names = ['main', ...tags.split('\n').filter(Boolean)]
  return {
    text: version,
    items: [
      ...names.map((name) => ({ text: name, link: site ? `${site}/${name}/` : `${repository}/tree/${name}/docs` })),
      { text: all, link: `${repository}/blob/HEAD/CHANGELOG.md` },
    ],
  }
}

function nav(locale: 'title' | 'zh'): DefaultTheme.NavItem[] {
  return sidebar(locale).map((section, i) => ({
    text: section.text!,
    link: section.items![0].link!,
    activeMatch: `^/${sections[i].folder}/`,
  }))
}

// Words between blanks and punctuation; Chinese, which has neither between words, as a dictionary cuts it.
function words(text: string): string[] {
  const han = new Intl.Segmenter('zh', { granularity: 'word' })
  return text
    .split(/[\n\r\p{Z}\p{P}]+/u)
    .flatMap((word) => (/\p{Script=Han}/u.test(word) ? Array.from(han.segment(word), (s) => s.segment) : [word]))
}

export default defineConfig({
  title: 'Holdfast',
  description: 'One refund, however many times it is asked for, with the database you already run.',
  base,
  srcDir: '..',
  srcExclude: ['!(docs)/**/*', '!(README|README.zh-CN).md', 'docs/!(start|howto|reference|why)/**/*'],
  outDir: '../bin/site',
  cacheDir: '../bin/site-cache',
  metaChunk: true,
  rewrites,
  markdown,
  locales: {
    root: { label: 'English', lang: 'en' },
    zh: {
      label: '简体中文',
      lang: 'zh-CN',
      link: '/zh/',
      themeConfig: {
        nav: [...nav('zh'), versions('变更')],
        sidebar: sidebar('zh'),
        outline: { label: '本页' },
        docFooter: { prev: '上一页', next: '下一页' },
        darkModeSwitchLabel: '外观',
        sidebarMenuLabel: '目录',
        returnToTopLabel: '回到顶部',
        langMenuLabel: '语言',
      },
    },
  },
  themeConfig: {
    nav: [...nav('title'), versions('Changes')],
    sidebar: sidebar('title'),
    socialLinks: [{ icon: 'github', link: repository }],
    i18nRouting: false, // the other pages have no Chinese form yet
    search: {
      provider: 'local',
      options: {
        miniSearch: { options: { tokenize: words } },
        locales: {
          zh: {
            translations: {
              button: { buttonText: '搜索', buttonAriaLabel: '搜索' },
              modal: {
                noResultsText: '没有结果：',
                resetButtonTitle: '清除',
                footer: { selectText: '打开', navigateText: '选择', closeText: '关闭' },
              },
            },
          },
        },
      },
    },
  },
  vite: {
    plugins: [
      {
        name: 'vue-of-the-site',
        enforce: 'pre',
        // README.md lies outside the folder that has node_modules above it.
        resolveId(id, importer) {
          if (/^vue($|\/)/.test(id) && importer?.endsWith('.md')) return this.resolve(id, import.meta.filename)
        },
      },
    ],
    build: { chunkSizeWarningLimit: 2000 }, // mermaid, which only a page with a diagram loads
  },
})
